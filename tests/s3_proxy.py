"""Stands between a client and a real S3 server, and does to requests what a bad day does.

    with S3Proxy("http://127.0.0.1:8333") as proxy:
        proxy.faults.append(Fault(method="PUT", path="pointer.json", status=507, code="…"))

The signature covers the address that the client asked, which the server is told unchanged; so
nothing needs to be signed again.
"""

import contextlib
import http.client
import http.server
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PASSED_ON = ("connection", "keep-alive", "transfer-encoding")


@dataclass
class Fault:
    """What is done to requests of a method whose path contains `path` (empty: any).

    status, code: answered in place of the server. delay_s: before it is passed on. before,
    after: called before it is passed on, and after the server has answered, while the client
    still waits. cut: the answer is thrown away and the connection closed. times: requests that
    it concerns, the first ones; the others pass.
    """

    method: str = ""
    path: str = ""
    status: int = 0
    code: str = ""
    delay_s: float = 0.0
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None
    cut: bool = False
    times: int = 1_000_000
    met: int = 0


@dataclass
class S3Proxy:
    """The running proxy. requests: method and path of each, in order."""

    upstream: str
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __enter__(self) -> "S3Proxy":
        proxy = self

        class Handler(_Handler):
            world = proxy

        self._lock, self._ended = threading.Lock(), threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fault_of(self, method: str, path: str) -> Fault | None:
        """The first fault that concerns this request."""
        with self._lock:
            self.requests.append((method, path))
            for fault in self.faults:
                if fault.method in ("", method) and fault.path in path and fault.met < fault.times:
                    fault.met += 1
                    return fault
        return None

    def wait(self, seconds: float) -> None:
        """Hold a request up, at most until the proxy ends."""
        self._ended.wait(seconds)


class _Handler(http.server.BaseHTTPRequestHandler):
    world: S3Proxy
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def setup(self) -> None:
        super().setup()
        self._upstream = http.client.HTTPConnection(urlsplit(self.world.upstream).netloc)

    def finish(self) -> None:
        self._upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def handle_expect_100(self) -> bool:
        go_on = super().handle_expect_100()
        self.wfile.flush()  # the client waits for it
        return go_on

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.world.fault_of(self.command, self.path) or Fault()
        self.world.wait(fault.delay_s)
        if fault.before is not None:
            fault.before()
        if fault.status:
            words = f"<Error><Code>{fault.code}</Code><Message>so it was told</Message></Error>"
            self._answer(fault.status, [], words.encode())
            return
        try:
            self._upstream.request(self.command, self.path, body, dict(self.headers.items()))
            answer = self._upstream.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):  # the server is gone
            self._upstream.close()
            self.close_connection = True
            return
        if fault.after is not None:
            fault.after()
        if fault.cut:
            self.close_connection = True
            return
        self._answer(answer.status, answer.getheaders(), data)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in (*PASSED_ON, "content-length"):
                    self.send_header(name, value)
            # What a HEAD request would get is told, and not sent.
            told = {name.lower(): value for name, value in headers}.get("content-length", "0")
            self.send_header("Content-Length", told if self.command == "HEAD" else str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle
