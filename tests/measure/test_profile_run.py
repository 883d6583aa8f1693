"""A profile whose time is over says what it did not measure."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest

from tabletune.core.plausibility import PlausibilityLimits
from tabletune.measure.profile_in_engine import CellSamples
from tabletune.measure.profile_run import ProfilePlan, ProfileState, run_profile
from tests.stepping_clock import SteppingClock

SECONDS_EACH = 40.0
STEPS = 40
CONTEXT_TOK = 384.0
STEP_S = 0.008


class SlowMeasurer:
    """Takes `SECONDS_EACH` for a batch size and gives `STEPS` steps of each length."""

    def __init__(self, clock: SteppingClock) -> None:
        self.clock = clock
        self.measured: list[int] = []

    def measure(
        self,
        batch_size: int,
        lengths: Iterable[int],
        start: Mapping[int, CellSamples] | None,
        slope: Callable[[int], float] | None = None,
    ) -> dict[int, CellSamples]:
        self.measured.append(batch_size)
        self.clock.s += SECONDS_EACH
        return {
            k: CellSamples([0.01] * STEPS, [batch_size * (k + 1)] * STEPS, [100.0] * STEPS)
            for k in lengths
        }


class Told:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.started: list[str] = []

    def start(self, name: str, total: float | None = None) -> None:
        self.started.append(name)

    def advance(self, done: float, note: str = "") -> None:
        pass

    def say(self, text: str) -> None:
        self.said.append(text)


def profiled(budget_s: float, least_steps: int = 3) -> tuple[list[int], Told]:
    clock, told = SteppingClock(), Told()
    measurer = SlowMeasurer(clock)
    limits = PlausibilityLimits(min_samples=least_steps)
    plan = ProfilePlan((1, 2, 4, 8), lambda _: (0, 1), lambda _: [], 100.0, limits, budget_s)
    run_profile(measurer, plan, ProfileState(), "constant", clock, told, lambda _: None)
    return measurer.measured, told


def test_what_the_time_did_not_suffice_for_is_named() -> None:
    measured, told = profiled(budget_s=60)
    assert measured == [8, 4]
    assert told.said == ["the profile's 60 s are over: not measured at batch sizes [1, 2]"]


def test_nothing_is_said_where_all_was_measured() -> None:
    measured, told = profiled(budget_s=600)
    assert measured == [8, 4, 2, 1]
    assert told.said == []


def test_no_repetition_is_announced_when_there_is_no_time_for_it() -> None:
    measured, told = profiled(budget_s=150, least_steps=STEPS + 1)
    assert measured == [8, 4, 2, 1]
    assert not [stage for stage in told.started if "again" in stage]
    _, told = profiled(budget_s=600, least_steps=STEPS + 1)
    assert [stage for stage in told.started if "again" in stage]


class DriftingMeasurer:
    """Steps that rise with the context by 30 ns a request, 24 at a time until a cell is tight. In
    the first 24 of one cell the host got slower, which by that cell's own slope is none."""

    def __init__(self) -> None:
        self.bursts: list[int] = []

    def measure(
        self,
        batch_size: int,
        lengths: Iterable[int],
        start: Mapping[int, CellSamples] | None,
        slope: Callable[[int], float] | None = None,
    ) -> dict[int, CellSamples]:
        cell = (start or {}).get(0, CellSamples())
        of_cell = None if slope is None else batch_size * slope(0)
        while self._width(cell, of_cell) > 0.02 and len(cell.samples_s) < 960:
            self._burst(batch_size, cell)
        return dict.fromkeys(lengths, cell)

    def _width(self, cell: CellSamples, slope_s_per_tok: float | None) -> float:
        found = cell.estimate("constant", CONTEXT_TOK, slope_s_per_tok)
        return float("inf") if found is None else found.relative_halfwidth

    def _burst(self, batch_size: int, cell: CellSamples) -> None:
        self.bursts.append(batch_size)
        context = np.linspace(130, 330, 24)
        steps = STEP_S + 30e-9 * batch_size * (context - CONTEXT_TOK)
        if batch_size == 32 and not cell.samples_s:
            steps = steps * np.linspace(1.0, 1.4, 24)
        cell.samples_s += steps.tolist()
        cell.context_tok += context.tolist()
        cell.scheduled_tok += [float(batch_size)] * 24


def test_a_cell_that_is_too_wide_by_the_slope_of_all_gets_more_steps() -> None:
    measurer, state, clock = DriftingMeasurer(), ProfileState(), SteppingClock()
    sizes, limits = (8, 16, 32, 64, 128), PlausibilityLimits(min_samples=3)
    plan = ProfilePlan(sizes, lambda _: (0,), lambda _: [], CONTEXT_TOK, limits, 600.0)
    problems = run_profile(measurer, plan, state, "constant", clock, Told(), lambda _: None)
    assert not problems
    assert [measurer.bursts.count(b) for b in (8, 16, 64, 128)] == [1, 1, 1, 1]
    assert measurer.bursts.count(32) > 1
    assert state.estimates("constant", CONTEXT_TOK)[32, 0].step_time_s == pytest.approx(
        STEP_S, rel=0.03
    )
