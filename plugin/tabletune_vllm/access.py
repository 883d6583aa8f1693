"""Who may use the endpoints, and what a request may say; no web framework in here."""

import hmac
import ipaddress
import json
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from tabletune_vllm.errors import ForbiddenError, RequestError, TooLargeError
from tabletune_vllm.runtime import READ_LIMIT_MAX

READ_LIMIT_DEFAULT = 2048


def check_client(host: str | None, headers: Mapping[str, str], token: str | None) -> None:
    """Let a request pass or refuse it.

    With a token every client must present it, local ones too, for a proxy makes all clients
    local. Without one only loopback clients pass, and no web page's script (its requests
    carry an Origin header).

    Raises:
        ForbiddenError: without telling anything about the token.
    """
    if token is not None:
        scheme, _, presented = headers.get("authorization", "").partition(" ")
        matches = hmac.compare_digest(presented.strip().encode(), token.encode())
        if scheme.lower() != "bearer" or not matches:
            raise ForbiddenError(
                "Authorization: Bearer TOKEN", "none or another", "send TABLETUNE_TOKEN's value"
            )
        return
    if not _is_loopback(host):
        raise ForbiddenError("a loopback client", repr(host), "set TABLETUNE_TOKEN and send it")
    if "origin" in headers:
        raise ForbiddenError(
            "no Origin header", repr(headers["origin"])[:80], "set TABLETUNE_TOKEN for browsers"
        )


def parse_body(body: bytes, content_type: str, limit_bytes: int) -> dict[str, object]:
    """A JSON object, strictly: no NaN, no repeated key, no other content type.

    Raises:
        TooLargeError, RequestError: with what was found.
    """
    if len(body) > limit_bytes:
        raise TooLargeError(f"at most {limit_bytes} bytes", f"{len(body)} or more", "send less")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise RequestError("Content-Type: application/json", repr(content_type)[:80], "set it")
    try:
        value: object = json.loads(
            body, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeats
        )
    except (ValueError, RecursionError) as error:
        raise RequestError("a JSON object", f"{error}"[:160], "correct the body") from None
    if not isinstance(value, dict):
        raise RequestError("a JSON object", repr(value)[:80], "correct the body")
    return cast(dict[str, object], value)


def parse_range(query: Mapping[str, str]) -> tuple[int, int]:
    """The since (default 0) and limit of GET /tabletune/steps.

    Raises:
        RequestError: for unknown names and for anything but whole numbers in range.
    """
    unknown = set(query) - {"since", "limit"}
    if unknown:
        raise RequestError("only since and limit", repr(sorted(unknown))[:80], "leave it out")
    since = _whole(query.get("since", "0"), "since", 0, 2**53)
    limit = _whole(query.get("limit", str(READ_LIMIT_DEFAULT)), "limit", 1, READ_LIMIT_MAX)
    return since, limit


def _whole(text: str, name: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and low <= int(text) <= high):
        raise RequestError(f"{name} from {low} to {high}", repr(text)[:80], "correct it")
    return int(text)


def _is_loopback(host: str | None) -> bool:
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is repeated")
    return value
