"""Who may use the endpoints and what a body may say."""

import pytest

from tabletune_vllm.access import check_client, parse_body, parse_range
from tabletune_vllm.errors import ForbiddenError, RequestError, TooLargeError

TOKEN = "a-long-enough-token"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_passes_without_a_token(host: str) -> None:
    check_client(host, {}, None)


@pytest.mark.parametrize("host", [None, "", "10.0.0.1", "::ffff:10.0.0.1", "localhost.evil", "0"])
def test_others_are_refused_without_a_token(host: str | None) -> None:
    with pytest.raises(ForbiddenError):
        check_client(host, {}, None)


def test_web_pages_are_refused_without_a_token() -> None:
    with pytest.raises(ForbiddenError):
        check_client("127.0.0.1", {"origin": "http://evil.example"}, None)


def test_a_token_opens_for_everyone_who_has_it_and_nobody_else() -> None:
    check_client("10.0.0.1", {"authorization": f"Bearer {TOKEN}"}, TOKEN)
    for header in ("", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ", "Bearer é"):
        with pytest.raises(ForbiddenError) as caught:
            check_client("127.0.0.1", {"authorization": header}, TOKEN)
        assert TOKEN not in str(caught.value)


def test_body_is_strict_json() -> None:
    assert parse_body(b'{"a": [1]}', "application/json; charset=utf-8", 99) == {"a": [1]}
    for body in (b"", b"[]", b"{", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff", b"[" * 9000):
        with pytest.raises(RequestError):
            parse_body(body, "application/json", 10_000)
    with pytest.raises(RequestError):
        parse_body(b"{}", "text/plain", 99)
    with pytest.raises(TooLargeError):
        parse_body(b" " * 100, "application/json", 99)


def test_range() -> None:
    assert parse_range({}) == (0, 2048)
    assert parse_range({"since": "12", "limit": "1"}) == (12, 1)
    for query in ({"since": "-1"}, {"limit": "0"}, {"limit": "99999999"}, {"sinse": "1"}):
        with pytest.raises(RequestError):
            parse_range(query)
