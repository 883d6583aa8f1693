"""The loads of a scenario on a running engine."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Self

import httpx
import numpy as np

from bench.evaluation.balancer import Balancer
from bench.evaluation.scenario import AnyLoad, Closed, Jump, Poisson, Trace
from tabletune.measure.api import EngineAddress
from tabletune.measure.driven import Load
from tabletune.measure.load import (
    ClosedLoop,
    LoadCounts,
    LoadRequest,
    RequestFailedError,
    Transport,
    complete,
    load_client,
)
from tabletune.measure.loop_thread import LoopThread


def is_open(load: AnyLoad) -> bool:
    """Whether requests arrive by themselves, whatever the engine does."""
    return isinstance(load, Poisson | Trace)


def spread_outputs(
    requests: Sequence[LoadRequest],
    output_tok: tuple[int, int],
    count: int,
    at_once: int,
    longest_tok: int,
    seed: int = 0,
) -> list[LoadRequest]:
    """`count` requests, cycled, with outputs evenly from the shortest to the longest.

    The first `at_once` are cut so that they end one after the other: requests then begin and
    end at an even pace, and each window has about its share of prompts. A request that ends by
    itself and whose own output is shorter keeps it; others have up to `longest_tok`, which is
    what the engine has room for behind their prompts.
    """
    output_tok = (min(output_tok[0], longest_tok), min(output_tok[1], longest_tok))
    lengths = np.random.default_rng(seed).integers(*output_tok, count, endpoint=True)
    lengths[:at_once] = lengths[:at_once] * (1 + np.arange(min(at_once, count))) / at_once
    return [
        dataclasses.replace(request, max_tokens=max(1, min(_own_tok(request), int(length))))
        for request, length in zip(itertools.cycle(requests), lengths, strict=False)
    ]


def _own_tok(request: LoadRequest) -> float:
    return float("inf") if request.extra.get("ignore_eos") else request.max_tokens


def gaps_s(load: Poisson | Trace, count: int, seed: int = 0) -> np.ndarray:
    """Seconds between arrivals, float64[count]: exponential, or gamma with the load's
    coefficient of variation."""
    variation = load.gap_variation if isinstance(load, Trace) else 1.0
    shape = 1 / variation**2
    draws = np.random.default_rng(seed).gamma(shape, 1 / (shape * load.rate_per_s), count)
    return draws.astype(np.float64)


class Arrivals:
    """Sends a request after each gap, for as long as the context is open.

    most_open: an arrival that finds so many open requests is dropped, and counted as failed.
    """

    def __init__(
        self,
        address: EngineAddress,
        model: str,
        requests: Sequence[LoadRequest],
        gaps: np.ndarray,
        most_open: int,
        transport: Transport | None = None,
    ) -> None:
        self._address, self._model, self._transport = address, model, transport
        self._requests, self._gaps = itertools.cycle(requests), itertools.cycle(gaps.tolist())
        self._most_open = most_open
        self.counts = LoadCounts()
        self._stop = asyncio.Event()
        self._loop = LoopThread("arrivals", self._serve)
        self.done = self._loop.done

    def __enter__(self) -> Self:
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.tell(self._stop.set)
        self._loop.join()

    async def _serve(self, ready: Callable[[], None]) -> None:
        clock = asyncio.get_running_loop()
        ready()
        open_now = set[asyncio.Task[None]]()
        async with load_client(self._address, self._transport) as http:
            next_s = clock.time()
            while not self._stop.is_set():
                next_s += next(self._gaps)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), max(0.0, next_s - clock.time()))
                if len(open_now) >= self._most_open:
                    self.counts.fail(f"{self._most_open} requests were open already")
                    continue
                task = asyncio.create_task(self._send(http, next(self._requests)))
                open_now.add(task)
                task.add_done_callback(open_now.discard)
            for task in list(open_now):
                task.cancel()
            await asyncio.gather(*open_now, return_exceptions=True)

    async def _send(self, http: httpx.AsyncClient, request: LoadRequest) -> None:
        try:
            tok, _ = await complete(http, request, self._model)
        except RequestFailedError as error:
            self.counts.fail(str(error))
            return
        self.counts.answer(tok)


@contextmanager
def _jumping(
    address: EngineAddress,
    model: str,
    requests: Sequence[LoadRequest],
    load: Jump,
    transport: Transport | None,
) -> Iterator[Load]:
    stop = threading.Event()

    def closed(of: Sequence[LoadRequest], concurrency: int) -> ClosedLoop:
        return ClosedLoop(address, model, of, concurrency, transport=transport)

    def jump() -> None:
        while not stop.wait(load.period_s / 2):
            until_s = time.monotonic() + load.period_s / 2
            with closed(requests[load.low :], load.high - load.low) as more:
                while not stop.wait(0.05) and time.monotonic() < until_s:
                    if more.done.is_set():
                        base.counts.failed += more.counts.failed
                        base.counts.last_error = more.counts.last_error
                        base.done.set()  # half a jump is none
                        return
            base.counts.failed += more.counts.failed
            base.counts.last_error = more.counts.last_error or base.counts.last_error

    with closed(requests, load.low) as base:
        thread = threading.Thread(target=jump, name="jumps", daemon=True)
        thread.start()
        try:
            yield base
        finally:
            stop.set()
            thread.join(timeout=60)


def open_load(
    load: AnyLoad,
    addresses: Sequence[EngineAddress],
    model: str,
    requests: Sequence[LoadRequest],
) -> AbstractContextManager[Load]:
    """Put a load on one engine, or balanced on several, for as long as the context is open."""
    first, transport = addresses[0], None
    if len(addresses) > 1:
        # One for all of a load's parts would be nearer to a router; but each has a loop of its
        # own, and two balanced halves are balanced.
        transport = partial(Balancer, [address.base_url for address in addresses])
    if isinstance(load, Closed):
        return ClosedLoop(first, model, requests, load.concurrency, transport=transport)
    if isinstance(load, Jump):
        return _jumping(first, model, requests, load, transport)
    return Arrivals(first, model, requests, gaps_s(load, 4096), load.most_open, transport)


def most_open(load: AnyLoad) -> int:
    """How many requests may be open at once."""
    if isinstance(load, Closed):
        return load.concurrency
    return load.high if isinstance(load, Jump) else load.most_open
