"""The canary's judgement: what it says, and what no data may make it say."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabletune.maintain.canary import EngineWindow, Use, compare, engine_window, judge, renewed
from tabletune.maintain.policies import CanaryPolicy
from tests.maintain.live import snapshot

NEW, OLD = "a" * 64, "b" * 64
POLICY = CanaryPolicy(minutes=30, most_minutes=120, margin=0.03, least_steps=1000)


def engine(
    name: str,
    speed: float = 1.0,
    sizes: tuple[int, ...] = (1, 4, 8),
    steps: int = 2000,
    version: str = OLD,
    falls: int = 0,
) -> EngineWindow:
    """An engine whose requests get `speed` × 50 tokens a second, slower in larger batches."""
    uses = {
        size: Use(steps / len(sizes), 10.0, speed * 50 * size * 10.0 / math.sqrt(size))
        for size in sizes
    }
    return EngineWindow(name, version, uses, falls)


def canary(name: str = "c", speed: float = 1.0, **facts: object) -> EngineWindow:
    return engine(name, speed, version=NEW, **facts)  # pyright: ignore[reportArgumentType]


OTHERS = [engine("o1", 0.99), engine("o2", 1.0), engine("o3", 1.01), engine("o4", 1.0)]


def test_as_quick_as_the_others_is_promoted_when_the_time_is_up_and_not_before() -> None:
    assert judge(POLICY, NEW, [canary()], OTHERS, 29).outcome == "go on"
    said = judge(POLICY, NEW, [canary()], OTHERS, 31)
    assert said.outcome == "promote"
    assert said.ratio == pytest.approx(1.0, abs=1e-3)


def test_a_much_slower_canary_goes_back_before_its_time() -> None:
    assert judge(POLICY, NEW, [canary(speed=0.7)], OTHERS, 2).outcome == "back"


def test_another_load_is_no_difference() -> None:
    crowded = canary(sizes=(8, 16, 64), steps=5000)
    others = [engine(f"o{n}", 1 + n / 1000, sizes=(1, 4, 8, 16)) for n in range(4)]
    assert judge(POLICY, NEW, [crowded], others, 31).ratio == pytest.approx(1.0, abs=0.01)


def test_a_fall_to_the_boot_table_goes_back_at_once() -> None:
    said = judge(POLICY, NEW, [canary(falls=1, steps=1)], OTHERS, 0)
    assert said.outcome == "back"
    assert "boot table: c" in said.reasons[0]


def test_engines_that_have_not_the_candidate_yet_do_not_count() -> None:
    said = judge(POLICY, NEW, [engine("late", 0.5)], OTHERS, 60)
    assert said.outcome == "go on"
    assert "the canary engines took 0 steps" in said.reasons[0]


@pytest.mark.parametrize("what", ["promote", "back"])
def test_without_traffic_the_policy_decides_at_the_end(what: str) -> None:
    policy = POLICY.model_copy(update={"without_traffic": what})
    assert judge(policy, NEW, [], OTHERS, 119).outcome == "go on"
    assert judge(policy, NEW, [], OTHERS, 120).outcome == what


def test_two_engines_say_nothing_of_how_much_engines_differ() -> None:
    assert judge(POLICY, NEW, [canary()], OTHERS[:1], 60).outcome == "go on"
    assert judge(POLICY, NEW, [canary()], OTHERS[:1], 120).outcome == "promote"
    assert judge(POLICY, NEW, [canary(speed=0.9)], OTHERS[:1], 120).outcome == "back"


def test_loads_without_a_common_batch_size_are_not_compared() -> None:
    said = judge(POLICY, NEW, [canary(sizes=(256,))], OTHERS, 60)
    assert "no batch size in common" in said.reasons[0]


def test_a_window_is_what_happened_between_two_snapshots() -> None:
    before = snapshot("e", version=OLD, uses={4: (100, 10.0, 1000)}, falls=1)
    after = snapshot("e", version=OLD, uses={4: (150, 16.0, 1700), 2: (5, 1.0, 20)}, falls=2)
    window = engine_window(before, after)
    assert window.uses == {4: Use(50, 6.0, 700), 2: Use(5, 1.0, 20)}
    assert (window.falls, window.table_version) == (1, OLD)
    assert engine_window(None, after).uses[4] == Use(150, 16.0, 1700)


def test_a_window_with_a_swap_in_it_belongs_to_neither_table() -> None:
    before, after = snapshot("e", version=OLD), snapshot("e", version=NEW)
    assert engine_window(before, after).table_version == ""
    with pytest.raises(ValueError, match="one engine run"):
        engine_window(snapshot("other"), after)


def test_the_window_begins_anew_where_an_engine_got_the_candidate() -> None:
    begun = snapshot("c", version=OLD, uses={4: (100, 10.0, 1000)})
    other = snapshot("o", version=OLD, uses={4: (100, 10.0, 1000)})
    before = renewed({}, [begun, other])
    swapped = snapshot("c", version=NEW, uses={4: (150, 15.0, 1500)})
    before = renewed(before, [swapped, snapshot("o", version=OLD, uses={4: (200, 20.0, 2000)})])
    assert before == {"c": swapped, "o": other}
    later = snapshot("c", version=NEW, uses={4: (1150, 90.0, 21_500)})
    before = renewed(before, [later])
    window = engine_window(before["c"], later)
    assert (window.table_version, window.uses) == (NEW, {4: Use(1000, 75.0, 20_000)})


# What holds for any engines whatever.

uses = st.dictionaries(
    st.integers(1, 256),
    st.builds(Use, st.integers(1, 10_000), st.floats(0.1, 1000), st.integers(1, 1_000_000)),
    max_size=6,
)
windows = st.builds(
    EngineWindow,
    st.text(max_size=3),
    st.sampled_from([NEW, OLD, ""]),
    uses,
    st.sampled_from([0, 0, 0, 1]),
)
fleets = st.lists(windows, max_size=6)
times = st.floats(-100, 1000)


def faster(window: EngineWindow, factor: float) -> EngineWindow:
    scaled = {b: Use(u.steps, u.seconds, u.output_tok * factor) for b, u in window.uses.items()}
    return EngineWindow(window.run_id, window.table_version, scaled, window.falls)


@settings(max_examples=300, deadline=None)
@given(fleets, fleets, times)
def test_every_fleet_gets_an_answer_with_a_reason(
    canaries: list[EngineWindow], others: list[EngineWindow], minutes: float
) -> None:
    said = judge(POLICY, NEW, canaries, others, minutes)
    assert said.reasons
    if said.outcome == "promote":
        assert minutes >= POLICY.minutes
        assert not any(one.falls for one in canaries if one.table_version == NEW)
        assert said.ratio is not None
        assert said.ratio >= 1 - POLICY.margin
    if said.ratio is not None:
        assert said.low is not None
        assert said.high is not None
        assert said.low <= said.ratio * (1 + 1e-9)
        assert said.ratio <= said.high * (1 + 1e-9)
    if minutes >= POLICY.most_minutes:
        assert said.outcome != "go on"


@settings(max_examples=200, deadline=None)
@given(fleets, fleets, times, st.floats(1, 3))
def test_faster_canaries_are_never_judged_worse(
    canaries: list[EngineWindow], others: list[EngineWindow], minutes: float, factor: float
) -> None:
    order = {"back": 0, "go on": 1, "promote": 2}
    slow = judge(POLICY, NEW, canaries, others, minutes).outcome
    quick = judge(POLICY, NEW, [faster(one, factor) for one in canaries], others, minutes).outcome
    assert order[quick] >= order[slow]


@settings(max_examples=100, deadline=None)
@given(st.lists(windows, min_size=2, max_size=6))
def test_the_same_engines_on_both_sides_are_equal(engines: list[EngineWindow]) -> None:
    ratio, low, high = compare(engines, engines, 0.95)
    if ratio:
        assert ratio == pytest.approx(1.0)
        assert low <= 1.0 <= high


def test_equal_engines_are_rarely_sent_back_and_slow_ones_rarely_promoted() -> None:
    rng = np.random.default_rng(5)
    wrong = {1.0: 0, 0.9: 0}
    for speed in wrong:
        for _ in range(200):
            noise = np.exp(rng.normal(0, 0.02, 8))
            canaries = [canary(f"c{n}", speed * noise[n]) for n in range(2)]
            others = [engine(f"o{n}", noise[n]) for n in range(2, 8)]
            said = judge(POLICY, NEW, canaries, others, 40).outcome
            wrong[speed] += said == ("back" if speed == 1.0 else "promote")
    assert wrong[1.0] <= 10
    assert wrong[0.9] == 0
