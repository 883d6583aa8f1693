"""A router in front of several engines, as far as a load can tell: fewest open requests first.

llm-d's scheduler scores replicas by what waits and by what they have cached; with prompts that
share nothing what is left of that is the length of their queues.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import httpx

from tabletune.measure.load import UNLIMITED


class Balancer(httpx.AsyncBaseTransport):
    """Sends each request to the engine that has the fewest open; equals take turns.

    open_now: requests that each engine has not answered yet. Answers do not stream: their heads
        come with their bodies.
    inner: what carries the requests; None: HTTP without a limit of connections.
    """

    def __init__(
        self, base_urls: Sequence[str], inner: httpx.AsyncBaseTransport | None = None
    ) -> None:
        if not base_urls:
            raise ValueError("expected the addresses of engines, found none")
        self._urls = [httpx.URL(url) for url in base_urls]
        self._turns = itertools.count()
        self._inner = inner or httpx.AsyncHTTPTransport(limits=UNLIMITED, trust_env=False)
        self.open_now = [0] * len(base_urls)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        number = self._choose()
        url = self._urls[number]
        request.url = request.url.copy_with(scheme=url.scheme, host=url.host, port=url.port)
        request.headers["Host"] = url.netloc.decode()
        self.open_now[number] += 1
        try:
            return await self._inner.handle_async_request(request)
        finally:
            self.open_now[number] -= 1

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _choose(self) -> int:
        count, turn = len(self._urls), next(self._turns)
        return min(range(count), key=lambda i: (self.open_now[i], (i - turn) % count))
