"""A corrected candidate is validated itself, with the windows that are its own."""

from dataclasses import replace

import numpy as np
import pytest
from closed_loop_engine import LoopClock, LoopEngine
from test_validate import (
    SEQS,
    bench_of,
    best_table,
    goodput,
    noisy_engine,
    setup_of,
    subject_of,
    table,
)

from tabletune.measure.measurements import Key
from tabletune.measure.recheck import corrected_outcome, correction_of
from tabletune.measure.rounds import Bench
from tabletune.measure.validate import Outcome, conclude, measure_on_plugin_engine
from tabletune.measure.validation_setup import Setup
from tabletune.records.plan import Envelope
from tabletune.records.policy import CANDIDATE
from tabletune.records.table import Table, table_from_dense

EVERYWHERE = Envelope(allowed={str(k): ((1, SEQS),) for k in range(5)})
LOADS = (2, 32)


class World:
    """A candidate measured on an engine; `correct` validates what it is corrected to."""

    def __init__(self, candidate: Table, loads=LOADS, behaviour=None, **fields) -> None:
        self.clock = LoopClock()
        self.engine: LoopEngine = noisy_engine(
            self.clock, **{"noise": 0.03, "drift": 0.05, **(behaviour or {})}
        )
        self.bench: Bench = bench_of(self.clock)
        self.subject = subject_of(self.engine)
        more = {"rounds": 3, "more_rounds": 3, "correct_early": True, "envelope": EVERYWHERE}
        self.setup = setup_of(candidate, loads, **(more | fields))
        self.outcome = measure_on_plugin_engine(self.setup, self.bench, self.subject)

    def correct(self) -> tuple[Setup, Outcome]:
        made = correction_of(self.setup, self.bench, self.outcome)
        assert made is not None
        corrected = table_from_dense(list(made.lookup), 4)
        after = replace(self.setup, candidate=corrected, candidate_version="d" * 64, envelope=None)
        found = corrected_outcome(self.setup, after, self.bench, self.subject, self.outcome)
        return after, found


def windows(outcome: Outcome) -> dict[tuple[str, int], int]:
    found = outcome.measurements.series
    return {(key.policy, key.concurrency): len(found[key].windows) for key in found}


def test_a_table_that_is_wrong_at_one_load_is_corrected_there_and_passes() -> None:
    world = World(table([1, SEQS, 4]))
    assert not conclude(world.setup, world.bench, world.outcome).passed
    opened = world.engine.loads_opened
    after, found = world.correct()
    best = max(range(5), key=lambda k: goodput(32, k))
    assert after.candidate.draft_length(32) == best
    assert after.candidate.draft_length(2) == 4
    verdict = conclude(after, world.bench, found)
    assert verdict.passed, verdict.reasons
    assert verdict.table_version == "d" * 64
    lowest = {c: min(r.ratio for r in verdict.ratios if r.concurrency == c) for c in LOADS}
    assert min(lowest.values()) >= 0.97
    # Fresh windows at the load that changed alone, of the corrected table and what is close.
    assert 0 < world.engine.loads_opened - opened <= 3 * 6
    before = windows(world.outcome)
    assert {k: n for k, n in windows(found).items() if k[1] == 2} == {
        k: n for k, n in before.items() if k[1] == 2
    }
    assert windows(found)[CANDIDATE, 32] >= 6
    assert windows(found)["fixed-4", 32] == before[CANDIDATE, 32]  # clearly slower already
    assert verdict.wall_time_s > world.outcome.wall_time_s > 0


def test_windows_of_a_length_are_those_of_the_table_that_used_it() -> None:
    world = World(table([1, SEQS, 4]))
    after, found = world.correct()
    length = after.candidate.draft_length(32)
    whose = world.outcome.measurements.series[Key(f"fixed-{length}", 32)]
    own = found.measurements.series[Key(CANDIDATE, 32)]
    assert {n: own.windows[n] for n in whose.windows} == whose.windows
    assert found.measurements.measured_as(f"fixed-{length}", 32) == CANDIDATE
    assert found.measurements.series[Key("fixed-4", 32)].windows == (
        world.outcome.measurements.series[Key(CANDIDATE, 32)].windows
    )
    ratio = next(
        r
        for r in conclude(after, world.bench, found).ratios
        if (r.policy, r.concurrency) == (f"fixed-{length}", 32)
    )
    assert (ratio.ratio, ratio.low, ratio.high) == (1, 1, 1)


def test_no_window_of_other_lengths_counts() -> None:
    """The corrected table differs from every fixed length at the sizes that the load shows."""
    world = World(table([1, SEQS, 4]), loads=(32,))
    mixed = replace(world.setup, candidate=table([1, 31, 1], [32, SEQS, 0]), envelope=None)
    shown = world.outcome.measurements.series[Key(CANDIDATE, 32)].steps
    world.outcome.measurements.series[Key("fixed-0", 32)].steps[20] = sum(shown.values())
    world.outcome.measurements.series[Key("fixed-1", 32)].steps[20] = 1
    found = corrected_outcome(world.setup, mixed, world.bench, world.subject, world.outcome)
    first = world.outcome.measurements.next_round(32)
    own = found.measurements.series[Key(CANDIDATE, 32)]
    assert min(own.windows) >= first
    assert len(own.windows) >= 3
    for length in range(5):  # every one of them next to it
        pair = found.measurements.pair(CANDIDATE, f"fixed-{length}", 32)
        assert pair.paired
        assert len(pair.second) >= 3


def test_a_good_table_is_not_corrected() -> None:
    world = World(best_table(), behaviour={"noise": 0.01, "drift": 0.0})
    assert correction_of(world.setup, world.bench, world.outcome) is None


def test_without_an_envelope_nothing_is_corrected() -> None:
    world = World(table([1, SEQS, 4]), loads=(32,), envelope=None)
    assert correction_of(world.setup, world.bench, world.outcome) is None


def test_the_envelope_and_the_transitions_hold_for_corrections() -> None:
    best = max(range(5), key=lambda k: goodput(32, k))
    narrow = Envelope(
        allowed={str(k): ((1, SEQS if k != best else 8),) for k in range(5)},
        forbidden_transitions=((4, best + 1),),
    )
    world = World(table([1, SEQS, 4]), envelope=narrow)
    after, _ = world.correct()
    assert after.candidate.draft_length(32) not in (best, best + 1, 4)
    assert after.candidate.draft_length(2) == 4


def test_further_rounds_of_a_table_that_will_be_corrected_are_spared() -> None:
    early = World(table([1, SEQS, 4]), loads=(32,))
    assert set(windows(early.outcome).values()) == {3}
    never = World(table([1, SEQS, 4]), loads=(32,), envelope=None, behaviour={"noise": 0.2})
    assert max(windows(never.outcome).values()) > 3


def test_a_length_that_was_lucky_before_the_correction_fails_by_what_comes_after() -> None:
    world = World(table([1, SEQS, 4]), loads=(32,))
    best = max(range(5), key=lambda k: goodput(32, k))
    bad = 3 if best != 3 else 2
    lucky = world.outcome.measurements.series[Key(f"fixed-{bad}", 32)]
    fastest = world.outcome.measurements.series[Key(f"fixed-{best}", 32)].values()
    for number in lucky.windows:
        lucky.windows[number] = 1.5 * max(fastest) * (1 + 0.01 * number)
    after, found = world.correct()
    assert after.candidate.draft_length(32) == bad
    verdict = conclude(after, world.bench, found)
    assert not verdict.passed
    assert any("in the windows after the correction alone" in r for r in verdict.reasons)


def test_fresh_rounds_are_for_what_is_close() -> None:
    world = World(table([1, SEQS, 4]), loads=(32,), fresh_rounds=2, more_rounds=0)
    _, found = world.correct()
    rounds = windows(found)
    assert rounds[CANDIDATE, 32] == 5
    others = {n for (policy, _), n in rounds.items() if policy != CANDIDATE}
    assert others == {3, 5}, "the closest again, the clearly slower not"


def test_the_boot_table_comes_back() -> None:
    world = World(table([1, SEQS, 4]), loads=(32,))
    world.correct()
    assert world.engine.calls[-1] == ("swap_table", None)


@pytest.mark.parametrize("seed", range(3))
def test_what_passes_is_as_good_as_the_best_fixed_length(seed: int) -> None:
    """From a bad start, in noise: the truth behind a passing verdict is near the best."""
    world = World(table([1, SEQS, seed]), behaviour={"noise": 0.15})
    made = correction_of(world.setup, world.bench, world.outcome)
    setup, outcome = world.setup, world.outcome
    if made is not None:
        setup, outcome = world.correct()
    if conclude(setup, world.bench, outcome).passed:
        for load in LOADS:
            used = setup.candidate.draft_length(load)
            best = max(goodput(load, k) for k in range(5))
            assert goodput(load, used) > 0.93 * best
    assert np.isfinite(outcome.wall_time_s)
