"""A profile whose time is over says what it did not measure."""

from collections.abc import Iterable, Mapping

from tabletune.core.plausibility import PlausibilityLimits
from tabletune.measure.profile_in_engine import CellSamples
from tabletune.measure.profile_run import ProfilePlan, ProfileState, run_profile
from tests.stepping_clock import SteppingClock

SECONDS_EACH = 40.0
STEPS = 40


class SlowMeasurer:
    """Takes `SECONDS_EACH` for a batch size and gives `STEPS` steps of each length."""

    def __init__(self, clock: SteppingClock) -> None:
        self.clock = clock
        self.measured: list[int] = []

    def measure(
        self, batch_size: int, lengths: Iterable[int], start: Mapping[int, CellSamples] | None
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
