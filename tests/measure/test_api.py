"""The client of an engine: how long it waits for one that says nothing."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from tabletune.measure.api import EngineAddress, EngineApi, EngineApiError


class Silent(http.server.ThreadingHTTPServer):
    """Says nothing to the first `silent` calls, then answers every one with an empty object."""

    daemon_threads = True

    def __init__(self, silent: int) -> None:
        self.silent, self.calls, self.end = silent, list[str](), threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Silent

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.calls.append(f"{self.command} {self.path}")
        if len(self.server.calls) <= self.server.silent:
            self.server.end.wait()
            return
        body = json.dumps({}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def silent(request: pytest.FixtureRequest) -> Iterator[Silent]:
    """Silent to as many calls as the parameter says."""
    server = Silent(request.param)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.end.set()
    server.shutdown()
    thread.join()
    server.server_close()


def address(server: Silent) -> EngineAddress:
    return EngineAddress(f"http://127.0.0.1:{server.server_port}")


@pytest.mark.parametrize("silent", [1000], indirect=True)
def test_an_engine_known_to_be_gone_is_not_waited_for(silent: Silent) -> None:
    """With an hour to wait it is told after one try."""
    with (
        EngineApi(address(silent), timeout_s=3600, lost=lambda: True, try_s=0.05) as api,
        pytest.raises(EngineApiError, match="ReadTimeout"),
    ):
        api.steps()
    assert len(silent.calls) == 1


@pytest.mark.parametrize("silent", [3], indirect=True)
def test_an_engine_that_is_only_slow_is_asked_again(silent: Silent) -> None:
    with EngineApi(address(silent), timeout_s=500, try_s=0.5) as api:
        assert api.status() == {}
        api.pin(2)
    # On a busy machine an answer may come after its try was given up: then there is one more.
    gets, posts = silent.calls[:4], silent.calls[4:]
    assert gets == ["GET /tabletune/status"] * 4
    assert "POST /tabletune/pin" in posts
    assert posts == sorted(posts)  # nothing is asked again once the next call was made


@pytest.mark.parametrize("silent", [1000], indirect=True)
def test_the_whole_time_is_never_exceeded(silent: Silent) -> None:
    with (
        EngineApi(address(silent), timeout_s=1.2, try_s=0.3) as api,
        pytest.raises(EngineApiError, match="GET /tabletune/graphs: ReadTimeout"),
    ):
        api.graphs()
    assert 1 <= len(silent.calls) <= 4


@pytest.mark.parametrize("silent", [1000], indirect=True)
def test_what_may_not_happen_twice_is_sent_once(silent: Silent) -> None:
    with EngineApi(address(silent), timeout_s=1.2, try_s=0.3) as api:
        with pytest.raises(EngineApiError, match="ReadTimeout"):
            api.pin_schedule([(1, 2)])
        assert silent.calls == ["POST /tabletune/pin"]
        with pytest.raises(EngineApiError, match="ReadTimeout"):
            api.swap_table(None)  # twice the same table is the same table
    tables = silent.calls[1:]
    assert 1 <= len(tables) <= 4
    assert set(tables) == {"POST /tabletune/table"}
