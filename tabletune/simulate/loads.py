"""When requests arrive: closed loops, Poisson arrivals, bursts, recorded traces."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from tabletune.simulate.errors import SimulationError

_CHUNK = 512  # gaps drawn at a time


class Arrivals(Protocol):
    """When requests arrive; `next_s` is infinite when none is known to come."""

    next_s: float

    def pop(self) -> None: ...
    def completed(self, now_s: float) -> None: ...


class Load(Protocol):
    """A way to send requests."""

    def start(self, rng: np.random.Generator) -> Arrivals: ...


@dataclass(frozen=True)
class ClosedLoop:
    """N clients, each with one open request; the next follows `think_s` after the answer.

    think_s: what passes between the end of a request and the arrival of the next, e.g. the
        way over HTTP. exponential_think: it is the mean of an exponential distribution.
    ramp_s: the clients start evenly over this time.
    """

    clients: int
    think_s: float = 0.0
    exponential_think: bool = False
    ramp_s: float = 0.0

    def start(self, rng: np.random.Generator) -> Arrivals:
        if self.clients < 1 or self.think_s < 0:
            found = (self.clients, self.think_s)
            raise SimulationError("closed loop", "clients >= 1, think_s >= 0", found, "set both")
        return _Loop(self, rng)


@dataclass(frozen=True)
class OpenLoop:
    """Poisson arrivals; with bursts the rate jumps to `burst_per_s` for `on_s`, every period.

    rate_per_s: requests per second, outside of bursts. A period is off_s quiet, then on_s busy.
    """

    rate_per_s: float
    burst_per_s: float | None = None
    on_s: float = 0.0
    off_s: float = inf

    def start(self, rng: np.random.Generator) -> Arrivals:
        rates = (self.rate_per_s, self.burst_per_s or 0.0)
        bursty = self.burst_per_s is not None
        if min(rates) < 0 or max(rates) <= 0 or (bursty and not 0 < self.on_s + self.off_s < inf):
            raise SimulationError(
                "open loop",
                "a rate > 0, and on_s and off_s with burst_per_s",
                self,
                "rates are requests per second",
            )
        return _Poisson(self, rng)


@dataclass(frozen=True)
class Trace:
    """Recorded requests: arrival times in ascending order, prompt and output tokens.

    The lengths replace those of the traffic; its kind and its switches still count.
    """

    arrival_s: Sequence[float]
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]

    def start(self, rng: np.random.Generator) -> Arrivals:
        sizes = {len(self.arrival_s), len(self.prompt_tokens), len(self.output_tokens)}
        ordered = all(a <= b for a, b in zip(self.arrival_s, self.arrival_s[1:], strict=False))
        tokens = [*self.prompt_tokens, *self.output_tokens]
        if len(sizes) != 1 or not ordered or (tokens and min(tokens) < 1):
            raise SimulationError(
                "trace",
                "equally many arrivals (ascending), prompt and output tokens (>= 1)",
                (len(self.arrival_s), len(self.prompt_tokens), len(self.output_tokens)),
                "sort the trace by arrival",
            )
        return _Replay(self)


class _Loop:
    def __init__(self, load: ClosedLoop, rng: np.random.Generator) -> None:
        self._load, self._rng = load, rng
        self._due = [load.ramp_s * i / load.clients for i in range(load.clients)]
        self.next_s = self._due[0]

    def pop(self) -> None:
        heapq.heappop(self._due)
        self.next_s = self._due[0] if self._due else inf

    def completed(self, now_s: float) -> None:
        think_s = self._load.think_s
        if self._load.exponential_think:
            think_s = self._rng.exponential(think_s)
        heapq.heappush(self._due, now_s + think_s)
        self.next_s = self._due[0]


class _Poisson:
    """Arrivals of unit rate on the clock of the integrated rate, mapped back to seconds."""

    def __init__(self, load: OpenLoop, rng: np.random.Generator) -> None:
        self._load, self._rng = load, rng
        self._gaps: list[float] = []
        self._operational = 0.0
        self.next_s = 0.0
        self.pop()

    def pop(self) -> None:
        if not self._gaps:
            self._gaps = self._rng.exponential(1.0, _CHUNK).tolist()
        self._operational += self._gaps.pop()
        self.next_s = self._to_seconds(self._operational)

    def completed(self, now_s: float) -> None:
        """Open loops do not wait for answers."""

    def _to_seconds(self, expected: float) -> float:
        load = self._load
        if load.burst_per_s is None:
            return expected / load.rate_per_s
        quiet = load.rate_per_s * load.off_s
        periods, rest = divmod(expected, quiet + load.burst_per_s * load.on_s)
        start_s = periods * (load.on_s + load.off_s)
        if rest < quiet:
            return start_s + rest / load.rate_per_s
        if load.burst_per_s == 0:
            return start_s + load.off_s + load.on_s
        return start_s + load.off_s + (rest - quiet) / load.burst_per_s


class _Replay:
    def __init__(self, trace: Trace) -> None:
        self._times = list(trace.arrival_s)
        self._next = 0
        self.next_s = self._times[0] if self._times else inf

    def pop(self) -> None:
        self._next += 1
        self.next_s = self._times[self._next] if self._next < len(self._times) else inf

    def completed(self, now_s: float) -> None:
        """A trace does not wait for answers."""
