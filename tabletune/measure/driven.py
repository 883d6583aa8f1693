"""What a measurement needs of an engine and of the load on it, as protocols.

A running engine (`EngineApi`, `ClosedLoop`) and a simulated one both fulfil them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, cast

from tabletune.measure.api import EngineApi
from tabletune.measure.load import ClosedLoop, LoadCounts, LoadRequest
from tabletune.measure.steps import StepSource


class MetricsSource(Protocol):
    """An engine whose metrics page can be read."""

    def metrics_text(self) -> str: ...


class DrivenEngine(StepSource, MetricsSource, Protocol):
    """An engine with the plugin: steps can be read, draft lengths set."""

    def pin(self, draft_length: int | None) -> None: ...

    def swap_table(self, ranges: list[list[int]] | None) -> None: ...


class Flag(Protocol):
    """Set once the load has ended."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Load(Protocol):
    """Requests kept open against one engine; `done` once no request is left."""

    @property
    def counts(self) -> LoadCounts: ...

    @property
    def done(self) -> Flag: ...


class OpenLoad(Protocol):
    """Puts a closed loop of requests on an engine, for as long as the context is open."""

    def __call__(
        self,
        engine: MetricsSource,
        model: str,
        requests: Sequence[LoadRequest],
        concurrency: int,
        once: bool = False,
    ) -> AbstractContextManager[Load]: ...


def open_closed_loop(
    engine: MetricsSource,
    model: str,
    requests: Sequence[LoadRequest],
    concurrency: int,
    once: bool = False,
) -> AbstractContextManager[Load]:
    """The load on a running engine, over HTTP."""
    return ClosedLoop(cast(EngineApi, engine).address, model, requests, concurrency, once=once)
