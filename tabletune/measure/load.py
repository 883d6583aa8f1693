"""Closed-loop load: keeps a number of requests open against one engine.

Requests do not stream: throughput is read from the engine's own counters, so the client
costs it nothing while tokens flow. The loop runs on a thread of its own.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from tabletune.measure.api import EngineAddress
from tabletune.measure.loop_thread import LoopThread


@dataclass(frozen=True)
class LoadRequest:
    """What one request asks: a prompt (text or token ids) and how many tokens to generate."""

    prompt: str | list[int]
    max_tokens: int
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    def body(self, model: str) -> dict[str, Any]:
        """The JSON body for ``/v1/completions``; greedy unless `extra` says otherwise."""
        return {
            "model": model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            **self.extra,
        }


@dataclass
class LoadCounts:
    """What the loop has seen so far."""

    completed: int = 0
    completion_tok: int = 0
    failed: int = 0
    last_error: str = ""
    texts: list[str] = field(default_factory=list[str])

    def fail(self, error: str) -> None:
        """One more request failed."""
        self.failed += 1
        self.last_error = error

    def answer(self, tok: int) -> None:
        """One more was answered, with so many tokens."""
        self.completed += 1
        self.completion_tok += tok


class RequestFailedError(RuntimeError):
    """A request of a load got no completion; the message says what it got."""


#: Makes what carries a load's requests.
Transport = Callable[[], httpx.AsyncBaseTransport]
#: A load has as many connections as requests are open.
UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=None)


def load_client(address: EngineAddress, transport: Transport | None) -> httpx.AsyncClient:
    """The client of a load: requests take as long as they take. `transport` None: HTTP."""
    return httpx.AsyncClient(
        base_url=address.base_url,
        timeout=None,
        limits=UNLIMITED,
        trust_env=False,
        transport=None if transport is None else transport(),
    )


async def complete(http: httpx.AsyncClient, request: LoadRequest, model: str) -> tuple[int, str]:
    """Send one request; the tokens it generated, and its text.

    Raises:
        RequestFailedError: it cannot be sent, no answer, an error, or no completion.
    """
    try:
        answer = await http.post("/v1/completions", json=request.body(model))
    except (httpx.HTTPError, ValueError) as error:  # text may hold what is no character
        raise RequestFailedError(f"{type(error).__name__}: {error}") from error
    if answer.is_error:
        raise RequestFailedError(f"HTTP {answer.status_code}: {answer.text[:300]}")
    try:
        body = answer.json()
        return int(body["usage"]["completion_tokens"]), str(body["choices"][0]["text"])
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise RequestFailedError(f"no completion in the answer: {answer.text[:300]}") from error


class ClosedLoop:
    """Keeps `concurrency` requests open until closed; a finished one is replaced at once.

    Args:
        address: the engine.
        model: the served model's name.
        requests: cycled through in order.
        concurrency: open requests.
        once: send each request once and do not replace it.
        transport: makes what carries the requests, in the loop's own thread; None: HTTP to the
            address.
        keep_text: keep the answers' text, in the order they finished.

    Leaving the context cancels what is open: the engine aborts those requests.
    """

    def __init__(
        self,
        address: EngineAddress,
        model: str,
        requests: Sequence[LoadRequest],
        concurrency: int,
        once: bool = False,
        keep_text: bool = False,
        transport: Transport | None = None,
    ) -> None:
        if concurrency < 1 or not requests:
            raise ValueError(f"expected requests and a concurrency of 1 or more, not {concurrency}")
        self._address, self._model, self._requests = address, model, list(requests)
        self._target, self._once, self._keep_text = concurrency, once, keep_text
        self._transport = transport
        self.counts = LoadCounts()
        self._loop = LoopThread("closed-loop", self._serve)
        self.done = self._loop.done
        self._tasks: list[asyncio.Task[None]] = []
        self._source = iter(self._requests) if once else itertools.cycle(self._requests)

    def __enter__(self) -> Self:
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.tell(self._cancel_all)
        self._loop.join()

    def shrink(self, concurrency: int) -> None:
        """Cancel the newest requests until only `concurrency` are open, and keep it there."""
        self._loop.tell(lambda: self._shrink(concurrency))

    async def _serve(self, ready: Callable[[], None]) -> None:
        async with load_client(self._address, self._transport) as http:
            self._tasks = [asyncio.create_task(self._worker(http)) for _ in range(self._target)]
            ready()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _worker(self, http: httpx.AsyncClient) -> None:
        failures_in_a_row = 0
        while failures_in_a_row < 3:
            request = next(self._source, None)
            if request is None:
                return
            try:
                tok, text = await complete(http, request, self._model)
            except RequestFailedError as error:
                self.counts.fail(str(error))
                failures_in_a_row += 1
                continue
            failures_in_a_row = 0
            self.counts.answer(tok)
            if self._keep_text:
                self.counts.texts.append(text)

    def _shrink(self, concurrency: int) -> None:
        while len(self._tasks) > concurrency:
            self._tasks.pop().cancel()

    def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()
