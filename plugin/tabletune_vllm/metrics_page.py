"""Adds the plugin's metrics to the engine's own /metrics page.

vLLM serves that page from a route and from a mounted application, which differ between
versions. So the page is left to vLLM, and this ASGI layer appends to its answer. Whatever goes
wrong in here, and whenever the engine core does not answer at once, the page is vLLM's own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tabletune_vllm.exposition import render
from tabletune_vllm.logs import warn_once

PATH = "/metrics"
FETCH_TIMEOUT_S = 0.25
FRESH_S = 1.0

Fetch = Callable[[], Awaitable[Mapping[str, object]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Figures:
    """The engine core's figures, asked for at most once a second and waited for only briefly.

    An answer that comes late is there for the next scrape; until then the last one is shown,
    for the figures that a scrape misses would look like a restart.
    """

    def __init__(
        self,
        fetch: Fetch,
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = FETCH_TIMEOUT_S,
    ) -> None:
        self._fetch, self._clock, self._timeout_s = fetch, clock, timeout_s
        self._known: Mapping[str, object] | None = None
        self._known_s = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def get(self) -> Mapping[str, object] | None:
        """The newest figures that are to be had now, or None."""
        if self._known is None or self._clock() - self._known_s >= FRESH_S:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._ask())
            await asyncio.wait({self._asking}, timeout=self._timeout_s)
        return self._known

    async def _ask(self) -> None:
        try:
            figures = await self._fetch()
        except Exception as error:
            warn_once(f"TableTune: no metrics of the engine core: {error!r}")
            return
        if "error" not in figures:
            self._known, self._known_s = figures, self._clock()


class MetricsPage:
    """The ASGI layer; other paths pass through untouched."""

    def __init__(self, app: Any, figures: Figures) -> None:
        self.app = app
        self.figures = figures

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Send) -> None:
        if scope.get("type") != "http" or scope.get("path", "").rstrip("/") != PATH:
            await self.app(scope, receive, send)
            return
        page = _Page(send)
        await self.app(scope, receive, page.take)
        await page.finish(self.figures)


class _Page:
    """Holds an answer back until it is whole, and sends it with our lines at its end."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: dict[str, Any] | None = None
        self._body = bytearray()
        self._complete = False

    async def take(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._start = message
        elif kind == "http.response.body" and self._start is not None:
            self._body += message.get("body", b"")
            self._complete = not message.get("more_body", False)
        else:
            await self._send(message)

    async def finish(self, figures: Figures) -> None:
        if self._start is None:
            return
        headers = [(n.lower(), v) for n, v in self._start.get("headers", [])]
        if self._complete and self._start["status"] == 200 and _is_plain(dict(headers)):
            try:
                known = await figures.get()
                if known is not None:
                    self._body += render(known)
                    length = str(len(self._body)).encode()
                    headers = [(n, v) for n, v in headers if n != b"content-length"]
                    self._start = {
                        **self._start,
                        "headers": [*headers, (b"content-length", length)],
                    }
            except Exception as error:
                warn_once(f"TableTune: no metrics on the page: {error!r}")
        await self._send(self._start)
        await self._send(
            {
                "type": "http.response.body",
                "body": bytes(self._body),
                "more_body": not self._complete,
            }
        )


def _is_plain(headers: Mapping[bytes, bytes]) -> bool:
    """Whether text can be appended: not compressed, and not OpenMetrics, which has an end."""
    content = headers.get(b"content-type", b"")
    return content.startswith(b"text/plain") and b"content-encoding" not in headers
