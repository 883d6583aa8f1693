"""What is asked of the engine, and when: a load, its traffic, and switches of traffic.

workload = Workload(ClosedLoop(64), (Traffic(FixedLength(128), FixedLength(256)),))
source = workload.start(np.random.default_rng(0))
source.next_s, source.pop()   # when the next request arrives, and what it is
source.completed(12.5)        # a request ended: a closed loop sends the next one
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tabletune.simulate.errors import SimulationError
from tabletune.simulate.lengths import Lengths
from tabletune.simulate.loads import Load, Trace

_CHUNK = 512  # requests drawn at a time


@dataclass(frozen=True)
class Traffic:
    """The requests that are sent from `from_s` on.

    kind: which acceptance model they follow (an index into the engine's list of them).
    """

    prompts: Lengths
    outputs: Lengths
    kind: int = 0
    from_s: float = 0.0


@dataclass(frozen=True)
class Workload:
    """A load and its traffic. Later entries of `traffic` start at their `from_s`.

    switch_in_flight: at a switch open requests change their acceptance too, as when an
        operator changes synthetic acceptance in a running engine; otherwise only requests
        that arrive afterwards do.
    """

    load: Load
    traffic: tuple[Traffic, ...]
    switch_in_flight: bool = False

    def __post_init__(self) -> None:
        starts = [t.from_s for t in self.traffic]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise SimulationError(
                "traffic", "the first from 0 s, the others later", starts, "set from_s"
            )

    def start(self, rng: np.random.Generator) -> Source:
        return Source(self, rng)


class Source:
    """The running workload: `next_s` and `pop` in order of arrival."""

    def __init__(self, workload: Workload, rng: np.random.Generator) -> None:
        arrivals_rng, self._rng = rng.spawn(2)
        self._traffic = list(workload.traffic)
        self._trace = workload.load if isinstance(workload.load, Trace) else None
        self._arrivals = workload.load.start(arrivals_rng)
        self._drawn: list[tuple[int, int]] = []
        self._popped = 0
        self.next_s = self._arrivals.next_s
        self.in_flight_switches = (
            [(t.from_s, t.kind) for t in workload.traffic[1:]] if workload.switch_in_flight else []
        )

    def pop(self) -> tuple[float, int, int, int]:
        """(arrival in seconds, prompt tokens, output tokens, kind) of the next request."""
        arrival_s = self.next_s
        while len(self._traffic) > 1 and arrival_s >= self._traffic[1].from_s:
            del self._traffic[0]
            self._drawn = []
        traffic = self._traffic[0]
        if self._trace:
            sizes = (
                self._trace.prompt_tokens[self._popped],
                self._trace.output_tokens[self._popped],
            )
        else:
            if not self._drawn:
                prompts = traffic.prompts.draw(self._rng, _CHUNK).tolist()
                outputs = traffic.outputs.draw(self._rng, _CHUNK).tolist()
                self._drawn = list(zip(prompts, outputs, strict=True))[::-1]
            sizes = self._drawn.pop()
        self._popped += 1
        self._arrivals.pop()
        self.next_s = self._arrivals.next_s
        return arrival_s, sizes[0], sizes[1], traffic.kind

    def completed(self, now_s: float) -> None:
        """One request ended at `now_s`."""
        self._arrivals.completed(now_s)
        self.next_s = self._arrivals.next_s
