"""Arms take turns on a running engine, round after round, until done or out of time."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.evaluation.arms import Arm
from bench.evaluation.cells import Cells
from bench.evaluation.engine import BenchEngine, ComparisonError
from bench.evaluation.loads import is_open, most_open, open_load, spread_outputs
from bench.evaluation.scenario import AnyLoad, Scenario, Traffic
from bench.evaluation.window import window_of
from tabletune.measure.driven import Load
from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Progress
from tabletune.measure.steps import StepBatch, StepReader, concatenate

#: Of a window's steps so many may have another length than the table says.
OTHER_LENGTH_SHARE = 0.02
READ_S = 20.0
"""A long window is read in parts, so that the ring never overwrites a step."""


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
    """What the rounds of one boot share."""

    scenario: Scenario
    engine: BenchEngine
    requests: Sequence[LoadRequest]
    cells: Cells
    boot: str
    progress: Progress
    until_s: float
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
        )
        api = self.engine.live.api
        with open_load(bout.load, api.address, self.engine.live.model.name, stream) as load:
            self.sleep(self.scenario.ramp_s)
            for arm in arms:
                if arm.learns:
                    self.engine.put(arm)
                    self.sleep(self.scenario.learn_s)
            for number in rounds:
                self._refuse_late(self._round_s(len(arms)))
                self._round(bout, arms, number, load)

    def _round(self, bout: Bout, arms: Sequence[Arm], number: int, load: Load) -> None:
        missing = self.cells.missing(bout.label, number, [arm.name for arm in arms], self.boot)
        chance = np.random.default_rng([zlib.crc32(bout.label.encode()), number])
        for index in chance.permutation(len(arms)).tolist():
            arm = arms[index]
            if arm.name not in missing:
                continue
            self.progress.advance(number, f"round {number + 1}, {arm.name}")
            self.engine.put(arm)
            self.sleep(self.scenario.settle_s)
            steps = self._read(self.scenario.window_s)
            if load.done.is_set():
                found = f"the load ended: {load.counts.last_error or 'no request is left'}"
                raise ComparisonError(found, "see the engine's log")
            _check_lengths(arm, steps)
            survival = None if bout.traffic is None else bout.traffic.survival
            window = window_of(arm.name, steps, survival)
            cell = window.to_json() | {"boot": self.boot, "failed": load.counts.failed}
            self.cells.save(bout.label, number, arm.name, cell)
        if not self.engine.live.api.status().get("active"):
            raise ComparisonError("the plugin has turned itself off", "see the engine's log")

    def _read(self, seconds: float) -> StepBatch:
        reader = StepReader(self.engine.live.api)
        batches: list[StepBatch] = []
        left_s = seconds
        while left_s > 0:
            self.sleep(min(left_s, READ_S))
            left_s -= READ_S
            batches.append(reader.read_new())
        return concatenate(batches)

    def _round_s(self, arms: int) -> float:
        # Two calls and the wait for a step, per arm.
        return arms * (self.scenario.settle_s + self.scenario.window_s + 0.15)

    def _warm_up_s(self, arms: Sequence[Arm]) -> float:
        return self.scenario.ramp_s + self.scenario.learn_s * sum(arm.learns for arm in arms)

    def _refuse_late(self, needed_s: float) -> None:
        if self.now_s() + needed_s > self.until_s:
            raise OutOfTimeError


def _check_lengths(arm: Arm, steps: StepBatch) -> None:
    """Refuse a window in which the engine ran something else than the arm's table."""
    if not arm.lengths or not len(steps):
        return
    table = np.asarray(arm.lengths)
    expected = table[np.minimum(steps.batch_size, len(table) - 1)]
    wrong = np.flatnonzero(steps.draft_length != expected)
    if len(wrong) > max(OTHER_LENGTH_SHARE * len(steps), 1):
        i = int(wrong[0])
        raise ComparisonError(
            f"under {arm.name} the engine chose draft length {int(steps.draft_length[i])} at batch "
            f"size {int(steps.batch_size[i])} instead of {int(expected[i])}",
            "see whether another client changes the table",
        )
