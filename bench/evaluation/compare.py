"""Arms take turns on a running engine, round after round, until done or out of time."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from bench.evaluation.arms import Arm
from bench.evaluation.cells import Cells
from bench.evaluation.engine import BenchEngine, ComparisonError
from bench.evaluation.loads import is_open, most_open, open_load, spread_outputs
from bench.evaluation.replay import read_tokens, wait_until_idle, warm
from bench.evaluation.scenario import AnyLoad, Scenario, Traffic
from bench.evaluation.window import LEAST_STEPS, window_of
from tabletune.measure.driven import Load
from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Progress
from tabletune.measure.steps import StepBatch, StepReader, concatenate
from tabletune.measure.windows import other_lengths

SKIP_TOK = 8
"""Output tokens of each open request before a replayed window counts: by then all decode."""
READ_S = 20.0
"""A long window is read in parts, so that the ring never overwrites a step."""
LONGER_S = 10.0
"""A window that met too few steps goes on for so long: the host may have stood still."""


@dataclass(frozen=True)
class Bout:
    """One load under one traffic: what arms are compared in. traffic: None where it is real."""

    load: AnyLoad
    traffic: Traffic | None
    label: str


def bouts(scenario: Scenario) -> list[Bout]:
    """Every load under every traffic; the names of further traffic are in the labels."""
    found: list[Bout] = []
    for number, traffic in enumerate(scenario.traffic or (None,)):
        for load in scenario.loads:
            switched = (
                "" if traffic is None or number == 0 else f", after a switch to {traffic.name}"
            )
            found.append(Bout(load, traffic, load.name + switched))
    return found


class OutOfTimeError(RuntimeError):
    """The time limit comes before the next round would end."""


@dataclass
class Comparison:
    """What the rounds of one boot share. longest_tok: of an output, see `spread_outputs`."""

    scenario: Scenario
    engine: BenchEngine
    requests: Sequence[LoadRequest]
    cells: Cells
    boot: str
    progress: Progress
    until_s: float
    longest_tok: int
    sleep: Callable[[float], None] = time.sleep
    now_s: Callable[[], float] = time.monotonic

    def compare(self, bout: Bout, arms: Sequence[Arm]) -> None:
        """All missing rounds of a bout.

        Raises:
            OutOfTimeError: before a round that would not end in time.
            ComparisonError, EngineApiError: the engine does not follow, or died.
        """
        names = [arm.name for arm in arms]
        rounds = [
            n
            for n in range(self.scenario.rounds)
            if self.cells.missing(bout.label, n, names, self.boot)
        ]
        if not rounds:
            return
        self.progress.start(f"{bout.label}: {len(rounds)} rounds of {len(arms)} policies")
        self._refuse_late(self._warm_up_s(arms) + self._round_s(len(arms)))
        open_now = most_open(bout.load)
        stream = spread_outputs(
            self.requests,
            self.scenario.output_tok,
            count=max(4 * open_now, len(self.requests)),
            at_once=1 if is_open(bout.load) else open_now,
            longest_tok=self.longest_tok,
        )
        if self.scenario.replay_tok is not None:
            self._replay(bout, arms, rounds, stream)
            return
        with self._load(bout, stream) as load:
            self.sleep(self.scenario.ramp_s)
            for arm in arms:
                if arm.learns:
                    self.engine.put(arm)
                    self.sleep(self.scenario.learn_s)
            for number in rounds:
                self._refuse_late(self._round_s(len(arms)))
                for arm in self._turns(bout, arms, number):
                    self.engine.put(arm)
                    self.sleep(self.scenario.settle_s)
                    self._keep(bout, arm, number, self._read(self.scenario.window_s), load)
                self._check_active()

    def _replay(
        self,
        bout: Bout,
        arms: Sequence[Arm],
        rounds: Sequence[int],
        stream: Sequence[LoadRequest],
    ) -> None:
        """The rounds, with a load of its own for each window, always on the same requests."""
        api, open_now = self.engine.live.api, most_open(bout.load)
        warm(api, self.engine.live.model.name, stream, open_now)
        for arm in arms:
            if arm.learns:
                self.engine.put(arm)
                with self._load(bout, stream):
                    self.sleep(self.scenario.learn_s)
        skip_tok, count_tok = SKIP_TOK * open_now, (self.scenario.replay_tok or 0) * open_now
        for number in rounds:
            begun_s = self.now_s()
            for arm in self._turns(bout, arms, number):
                self.engine.put(arm)
                reader = StepReader(api)
                wait_until_idle(reader, self.sleep)
                with self._load(bout, stream) as load:
                    steps = read_tokens(arm.name, reader, load, skip_tok, count_tok, self.sleep)
                    self._keep(bout, arm, number, [steps], load)
            self._check_active()
            if number != rounds[-1]:
                self._refuse_late(self.now_s() - begun_s)

    def _load(self, bout: Bout, stream: Sequence[LoadRequest]) -> AbstractContextManager[Load]:
        engine = self.engine
        addresses = [live.api.address for live in engine.replicas]
        return open_load(bout.load, addresses, engine.live.model.name, stream)

    def _turns(self, bout: Bout, arms: Sequence[Arm], number: int) -> Iterator[Arm]:
        """The arms of a round that are still to be measured, in the round's own order."""
        missing = self.cells.missing(bout.label, number, [arm.name for arm in arms], self.boot)
        chance = np.random.default_rng([zlib.crc32(bout.label.encode()), number])
        for index in chance.permutation(len(arms)).tolist():
            arm = arms[index]
            if arm.name not in missing:
                continue
            self.progress.advance(number, f"round {number + 1}, {arm.name}")
            yield arm

    def _keep(
        self, bout: Bout, arm: Arm, number: int, of_each: Sequence[StepBatch], load: Load
    ) -> None:
        """Check a window and save it as a cell. of_each: the steps of each engine, which one after
        the other are a longer window of one."""
        if load.done.is_set():
            found = f"the load ended: {load.counts.last_error or 'no request is left'}"
            raise ComparisonError(found, "see the engine's log")
        for steps in of_each:
            _check_lengths(arm, steps)
        survival = None if bout.traffic is None else bout.traffic.survival
        window = window_of(arm.name, concatenate(list(of_each)), survival)
        cell = window.to_json() | {"boot": self.boot, "failed": load.counts.failed}
        self.cells.save(bout.label, number, arm.name, cell)

    def _check_active(self) -> None:
        if not all(live.api.status().get("active") for live in self.engine.replicas):
            raise ComparisonError("the plugin has turned itself off", "see the engine's log")

    def _read(self, seconds: float) -> list[StepBatch]:
        """Each engine's steps of so many seconds; of up to `LONGER_S` more while they are too
        few."""
        readers = [StepReader(live.api) for live in self.engine.replicas]
        parts: list[list[StepBatch]] = [[] for _ in readers]
        left_s = seconds
        while left_s > 0 or (left_s > -LONGER_S and _steps(parts) < LEAST_STEPS):
            part_s = min(left_s, READ_S) if left_s > 0 else LONGER_S / 20
            self.sleep(part_s)
            left_s -= part_s
            for reader, batches in zip(readers, parts, strict=True):
                batches.append(reader.read_new())
        return [concatenate(batches) for batches in parts]

    def _round_s(self, arms: int) -> float:
        # Two calls and the wait for a step, per arm.
        return arms * (self.scenario.settle_s + self.scenario.window_s + 0.15)

    def _warm_up_s(self, arms: Sequence[Arm]) -> float:
        return self.scenario.ramp_s + self.scenario.learn_s * sum(arm.learns for arm in arms)

    def _refuse_late(self, needed_s: float) -> None:
        if self.now_s() + needed_s > self.until_s:
            raise OutOfTimeError


def _steps(parts: Sequence[Sequence[StepBatch]]) -> int:
    return sum(len(batch) for batches in parts for batch in batches)


def _check_lengths(arm: Arm, steps: StepBatch) -> None:
    """Refuse a window in which the engine ran something else than the arm's table."""
    wrong = other_lengths(arm.lengths, steps)
    if wrong is not None:
        batch_size, expected, found = wrong
        raise ComparisonError(
            f"under {arm.name} the engine chose draft length {found} at batch "
            f"size {batch_size} instead of {expected}",
            "see whether another client changes the table",
        )
