"""An engine in simulated time: records steps as the plugin does, with faults put in.

Time passes only when the simulated clock sleeps. It stands in for an engine where a fault
(crash, hang, stall) must happen at a known place; tests/measure/test_qualify_engine.py
drives a real one.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tabletune.measure.api import EngineAddress, EngineApiError
from tabletune.measure.load import LoadCounts, LoadRequest
from tabletune.measure.steps import StepBatch

MAX_LENGTH = 4


@dataclass
class SimulatedRequest:
    load: "SimulatedLoad"
    left_tok: float
    prefilled: bool = False


@dataclass
class SimulatedLoad:
    target: int
    source: Iterator[LoadRequest]
    counts: LoadCounts = field(default_factory=LoadCounts)
    done: threading.Event = field(default_factory=threading.Event)

    def shrink(self, concurrency: int) -> None:
        self.target = concurrency


def staircase_s(size: int, verified: float, chosen: int) -> float:
    """Step time of a model drafter on a GPU: rises with padded tokens and with drafts."""
    padded = -(-size * (verified + 1) // 16) * 16
    return 0.004 + 12e-6 * padded + 0.0003 * chosen


class SimulatedEngine:
    """Implements QualifyApi, Clock and OpenLoad at once.

    Args:
        step_s: seconds of a step from (batch size, mean length verified, length chosen).
        verified_of: what the engine really drafts when told to draft K.
        crash_at, hang_at: (batch size, length chosen) that end it.
        slow_switches: extra seconds of the step after a switch (old, new).
        noise: factor on each step's time, from the generator.
        accept: rate at which first guesses are accepted; True after length 0 until a prefill.
        most: requests that fit into the KV cache.
        graphed: whether (batch size, mean length verified) runs as a graph; None: unknown.
        proposes: share of the requests for which the drafter proposes anything, per step.
        stands_s: before these steps the machine stands still for so many seconds, this client
            with it; the client is the first to run again.
        ends_at: before this step every open load ends, as if its client had failed.
    """

    def __init__(
        self,
        *,
        step_s: Callable[[int, float, int], float] = staircase_s,
        verified_of: Callable[[int], int] = lambda length: length,
        crash_at: Callable[[int, int], bool] = lambda size, length: False,
        hang_at: Callable[[int, int], bool] = lambda size, length: False,
        slow_switches: dict[tuple[int, int], float] | None = None,
        noise: Callable[[np.random.Generator], float] = lambda rng: 1.0,
        accept: Callable[[bool], float] = lambda stale: 0.7,
        refuses: str = "",
        most: int = 10_000,
        graphed: Callable[[int, float], bool] | None = None,
        proposes: Callable[[np.random.Generator], float] = lambda rng: 1.0,
        stands_s: dict[int, float] | None = None,
        ends_at: int | None = None,
    ) -> None:
        self.address = EngineAddress("http://127.0.0.1:9")
        self._step_s, self._verified_of = step_s, verified_of
        self._crash_at, self._hang_at, self._noise = crash_at, hang_at, noise
        self._slow, self._accept, self._refuses = slow_switches or {}, accept, refuses
        self._proposes, self._graphed, self._most = proposes, graphed, most
        self._rng = np.random.default_rng(7)
        self._now_s, self._engine_s = 100.0, 100.0
        self._loads = list[SimulatedLoad]()
        self._open = list[SimulatedRequest]()
        self._script = list[int]()
        self._pin: int | None = None
        self._chosen, self._stale = 0, False
        self._dead, self._hung = False, False
        self._stands_s, self._stood_s, self._ends_at = dict(stands_s or {}), 0.0, ends_at
        self.rows = list[tuple[Any, ...]]()
        self.pinned = list[int]()

    # Clock
    def now_s(self) -> float:
        return self._now_s

    def utc(self) -> str:
        return "2030-01-01T00:00:00+00:00"

    def sleep_s(self, seconds: float) -> None:
        self._now_s += seconds
        seen = len(self.rows)
        while self._engine_s < self._now_s and not self._dead and not self._hung:
            if len(self.rows) in self._stands_s:
                if len(self.rows) > seen:
                    return  # so that nothing is new after the machine stood
                self._stood_s = self._stands_s.pop(seen)
                self._now_s = max(self._now_s, self._engine_s + self._stood_s)
                return
            if not self._step():
                self._engine_s = self._now_s

    # QualifyApi
    def steps(self, since: int = 0, limit: int = 20_000) -> StepBatch:
        self._answer()
        rows = self.rows[since : since + limit]
        columns = [np.array(c) for c in zip(*rows, strict=True)] if rows else [np.array([])] * 12
        ints = [c.astype(np.int64) for c in columns]
        through = np.zeros((len(rows), MAX_LENGTH), dtype=np.int64)
        accepted = through.copy()
        if rows:
            through[:, 0], accepted[:, 0] = ints[8], ints[9]
        return StepBatch(
            seq=ints[0],
            time_s=columns[1].astype(float),
            interval_s=columns[2].astype(float),
            batch_size=ints[3],
            draft_length=ints[4],
            verified_length=ints[5],
            drafted_tok=ints[6],
            scheduled_tok=ints[7],
            prefill_requests=ints[10],
            output_tok=ints[3],
            request_steps=ints[3] - ints[10],
            graph_mode=ints[11],
            padded_tok=ints[7],
            drafted_through=through,
            accepted_through=accepted,
            next_seq=min(max(since, 0), len(self.rows)) + len(rows),
        )

    def pin(self, draft_length: int | None) -> None:
        self._answer()
        self._pin, self._script = draft_length, []
        self.pinned += [] if draft_length is None else [draft_length]

    def pin_schedule(self, schedule: list[tuple[int, int]], repeat: int = 1) -> None:
        self._answer()
        self._script = [k for k, steps in schedule for _ in range(steps)] * repeat

    def complete(self, model: str, prompt: Any, max_tokens: int, **sampling: Any) -> Any:
        raise NotImplementedError("tests pass run_prompts")

    def metrics_text(self) -> str:
        self._answer()
        return f"vllm:num_requests_running {len(self._open)}\nvllm:generation_tokens_total 1\n"

    def died(self) -> str | None:
        return "CUDA error: an illegal memory access was encountered" if self._dead else None

    # OpenLoad
    @contextmanager
    def open_load(
        self, requests: Sequence[LoadRequest], concurrency: int
    ) -> Iterator[SimulatedLoad]:
        load = SimulatedLoad(concurrency, itertools.cycle(requests))
        if self._refuses:
            load.counts.failed, load.counts.last_error = 1, self._refuses
        self._loads.append(load)
        try:
            yield load
        finally:
            self._loads.remove(load)

    def _answer(self) -> None:
        if self._dead:
            raise EngineApiError("GET /tabletune/steps", "HTTP 500: EngineDeadError", "see the log")

    def _step(self) -> bool:
        """One engine step; False when there is nothing to do."""
        if len(self.rows) == self._ends_at:
            for load in self._loads:
                load.target = 0
                load.done.set()
        for load in self._loads:
            mine = [r for r in self._open if r.load is load]
            for request in mine[load.target :]:
                self._open.remove(request)
            for _ in range(load.target - len(mine)):
                self._open.append(SimulatedRequest(load, next(load.source).max_tokens))
        self._open = [r for r in self._open if r.load in self._loads]
        waiting, self._open = self._open[self._most :], self._open[: self._most]
        size = len(self._open)
        if size == 0:
            return False
        verified, old = self._verified_of(self._chosen), self._chosen
        chosen = self._script.pop(0) if self._script else (self._pin if self._pin else 0)
        if self._crash_at(size, chosen):
            self._dead = True
            return True
        if self._hang_at(size, chosen):
            self._hung = True
            return True
        prefills = sum(not r.prefilled for r in self._open)
        decodes = size - prefills
        drafts = round(decodes * self._proposes(self._rng)) if verified else 0
        drafted = drafts * verified
        mean_verified = drafted / decodes if decodes else 0
        took_s = self._step_s(size, mean_verified, self._verified_of(chosen))
        took_s *= self._noise(self._rng)
        took_s += 0.03 if prefills else 0.0
        took_s += self._slow.get((old, chosen), 0.0) + self._stood_s
        self._stood_s = 0.0
        self._engine_s += took_s
        self._stale = self._stale or old == 0
        accepted = int(self._rng.binomial(drafts, self._accept(self._stale))) if drafts else 0
        self._stale = self._stale and not prefills
        known = verified if verified <= old and not prefills else -1
        row = (len(self.rows), self._engine_s, took_s, size, chosen, known)
        mode = 2 * self._graphed(size, mean_verified) if self._graphed else -1
        self.rows.append((*row, drafted, drafted + size, drafts, accepted, prefills, mode))
        self._chosen = chosen
        for request in list(self._open):
            request.prefilled = True
            request.left_tok -= 1
            if request.left_tok <= 0:
                self._open.remove(request)
        self._open += waiting
        return True
