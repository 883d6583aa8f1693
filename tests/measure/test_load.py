"""The closed loop against a small real HTTP server."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tabletune.measure.api import EngineAddress
from tabletune.measure.load import ClosedLoop, LoadRequest


class Server(http.server.ThreadingHTTPServer):
    """Answers completions once `gate` is open; remembers how many wait at once."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.gate, self.lock = threading.Event(), threading.Lock()
        self.open_requests = self.most_open = self.status = 0
        self.body: bytes | None = None
        self.arrived = threading.Semaphore(0)

    @property
    def address(self) -> EngineAddress:
        return EngineAddress(f"http://127.0.0.1:{self.server_port}")


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.open_requests += 1
            self.server.most_open = max(self.server.most_open, self.server.open_requests)
        self.server.arrived.release()
        self.server.gate.wait(20)
        with self.server.lock:
            self.server.open_requests -= 1
        answer = {
            "choices": [{"text": str(asked["prompt"])}],
            "usage": {"completion_tokens": asked["max_tokens"]},
        }
        body = self.server.body or json.dumps(answer).encode()
        with contextlib.suppress(OSError):  # the client may have cancelled
            self.send_response(self.server.status or 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.gate.set()
        running.shutdown()
        thread.join(10)


HUGE = b'{"usage": {"completion_tokens": 1e999}, "choices": []}'
REQUESTS = [LoadRequest(f"prompt {i}", 5) for i in range(7)]


def test_once_sends_each_request_once_and_ends_by_itself(server: Server) -> None:
    server.gate.set()
    with ClosedLoop(server.address, "m", REQUESTS, 3, once=True, keep_text=True) as load:
        assert load.done.wait(20)
    assert load.counts.completed == 7
    assert load.counts.completion_tok == 35
    assert sorted(load.counts.texts) == sorted(str(r.prompt) for r in REQUESTS)


def test_the_loop_keeps_its_concurrency_and_replaces_what_ends(server: Server) -> None:
    with ClosedLoop(server.address, "m", REQUESTS, 4) as load:
        for _ in range(4):
            assert server.arrived.acquire(timeout=20)
        server.gate.set()
        for _ in range(12):
            assert server.arrived.acquire(timeout=20)
    assert server.most_open <= 5  # one may be counted while its answer is on its way
    assert load.counts.completed >= 8
    assert load.done.is_set()


def test_leaving_cancels_what_is_open(server: Server) -> None:
    with ClosedLoop(server.address, "m", REQUESTS, 2) as load:
        assert server.arrived.acquire(timeout=20)
    assert load.done.is_set()
    assert load.counts.completed == 0


def test_an_engine_that_refuses_ends_the_load_and_says_why(server: Server) -> None:
    server.gate.set()
    server.status = 400
    with ClosedLoop(server.address, "m", REQUESTS, 2) as load:
        assert load.done.wait(20)
    assert "HTTP 400" in load.counts.last_error
    assert load.counts.completed == 0


@pytest.mark.parametrize(
    "body", [b"not JSON", b"{}", b'{"usage": null, "choices": []}', b"[]", HUGE]
)
def test_an_answer_that_is_no_completion_ends_the_load_and_says_so(
    server: Server, body: bytes
) -> None:
    server.gate.set()
    server.body = body
    with ClosedLoop(server.address, "m", REQUESTS, 2) as load:
        assert load.done.wait(20)
    assert load.counts.failed == 6, "three in a row for each of two"
    assert load.counts.last_error == f"no completion in the answer: {body.decode()}"


@pytest.mark.parametrize("prompt", ["half \ud800 a character", [float("nan")]])
def test_what_cannot_be_sent_ends_the_load_and_says_so(server: Server, prompt: Any) -> None:
    with ClosedLoop(server.address, "m", [LoadRequest(prompt, 5)], 2) as load:
        assert load.done.wait(20)
    assert load.counts.failed == 6
    assert "Error" in load.counts.last_error


def test_an_engine_that_is_gone_ends_the_load(server: Server) -> None:
    gone = EngineAddress("http://127.0.0.1:9")
    with ClosedLoop(gone, "m", REQUESTS, 2) as load:
        assert load.done.wait(20)
    assert "ConnectError" in load.counts.last_error


def test_shrinking_closes_the_newest_requests(server: Server) -> None:
    with ClosedLoop(server.address, "m", REQUESTS, 4) as load:
        for _ in range(4):
            assert server.arrived.acquire(timeout=20)
        load.shrink(1)
        server.gate.set()
        assert server.arrived.acquire(timeout=20)
    assert load.counts.failed == 0


@pytest.mark.parametrize(("requests", "concurrency"), [([], 2), (REQUESTS, 0)])
def test_a_load_without_work_is_refused(requests: list[LoadRequest], concurrency: int) -> None:
    with pytest.raises(ValueError, match="expected requests"):
        ClosedLoop(EngineAddress("http://127.0.0.1:9"), "m", requests, concurrency)
