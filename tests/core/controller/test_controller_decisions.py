"""The controller as a whole: what it puts in force, and what it never does."""

import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.promoted import Promoted
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.errors import CoreError
from tabletune.core.goodput import expected_tokens
from tests.core.controller.controller_scenes import (
    BAD,
    GOOD,
    SIZE,
    FakeEngine,
    Times,
    controller,
    counts,
    drive,
    promoted,
    step_time_s,
)


def best(
    survival: tuple[float, ...], batch_size: int, usable: tuple[int, ...] = (0, 1, 2, 3)
) -> int:
    tokens = expected_tokens(survival)
    return max(usable, key=lambda k: tokens[k] / step_time_s(batch_size, k))


def test_a_bad_table_is_left_for_the_best_within_seconds() -> None:
    control, engine = controller(promoted(0, BAD)), FakeEngine(GOOD, 20)
    drive(control, engine, 12)
    assert control.table[19] == best(GOOD, 20)


def test_a_wrong_profile_is_repaired() -> None:
    """K=3 really takes 40 % longer than profiled."""
    control = controller(promoted(3, GOOD))
    engine = FakeEngine(GOOD, 20, lambda b, k: 1.4 if k == 3 else 1.0)
    drive(control, engine, 15)
    assert control.table[19] == 2


def test_growing_context_is_no_reason_to_swap() -> None:
    control, engine = controller(promoted(3, GOOD)), FakeEngine(GOOD, 20)
    drive(control, engine, 30)
    table, swaps = control.table, 0
    for i in range(60):
        engine.slower = lambda b, k, i=i: 1.0 + 0.01 * i
        swaps += sum(d.kind == "swap" for _, _, d in drive(control, engine, 1, 30.0 + i))
    assert control.table == table
    assert swaps == 0


def test_a_limit_on_the_time_per_token_is_kept_where_it_can_be() -> None:
    """At one batch size goodput and time per token order the lengths alike."""
    limit_s = 0.0024
    control = controller(promoted(0, GOOD, max_tpot_s=limit_s))
    drive(control, FakeEngine(GOOD, 20), 20)
    tokens = expected_tokens(GOOD)
    for b in range(10, 24):
        possible = any(step_time_s(b, k) / tokens[k] <= 0.99 * limit_s for k in range(4))
        if possible:
            assert step_time_s(b, control.table[b - 1]) / tokens[control.table[b - 1]] <= limit_s
    assert control.state()["objective"] == "throughput_under_tpot_limit"


def test_lengths_that_the_boot_did_not_have_are_never_used() -> None:
    control = controller(promoted(0, GOOD, usable=(0, 1, 3)))
    for _, _, decision in drive(control, FakeEngine(GOOD, 20), 60):
        assert 2 not in (decision.lengths or ())
        assert all(k != 2 for k, _ in decision.probe)


def test_follow_learns_but_proposes_nothing() -> None:
    control = controller(promoted(0, GOOD))
    control.adapt = False
    assert {d.kind for _, _, d in drive(control, FakeEngine(GOOD), 40)} == {"hold"}
    assert control.state()["batch_size"] == 16
    control.adapt = True
    drive(control, FakeEngine(GOOD), 10, 40.0)
    assert control.table[15] > 0


def test_a_promotion_is_followed_at_once_and_corrected_later() -> None:
    control, engine = controller(promoted(2, GOOD)), FakeEngine(GOOD)
    drive(control, engine, 40)
    decision = control.promote(promoted(1, GOOD, version="second"), 41.0)
    assert decision.lengths == control.table == (1,) * SIZE
    assert "second" in decision.reason
    drive(control, engine, 15, 41.0)
    assert control.table[15] == best(GOOD, 16)
    assert control.state()["version"] == "second"


def test_swaps_are_limited_however_the_traffic_flips() -> None:
    control, engine = controller(), FakeEngine(GOOD)
    times: list[float] = []
    for i in range(240):
        engine.survival = GOOD if (i // 4) % 2 else BAD
        times += [at for at, _, d in drive(control, engine, 1, float(i)) if d.kind == "swap"]
    limit = ControllerSettings().most_swaps_per_minute
    for at_s in times:
        assert sum(at_s - 60 < other <= at_s for other in times) <= limit
    assert np.diff(times).min(initial=9.0) >= ControllerSettings().settling_dwell_s


@pytest.mark.parametrize("jump_s", [-1e6, -10.0, 1e6])
def test_a_clock_that_jumps_breaks_nothing(jump_s: float) -> None:
    control, engine = controller(promoted(0, BAD)), FakeEngine(GOOD)
    drive(control, engine, 5)
    drive(control, engine, 30, 5.0 + jump_s)
    assert control.table[15] == best(GOOD, 16)


def test_an_idle_engine_changes_nothing() -> None:
    control = controller()
    for i in range(50):
        decision = control.tick(LiveObservation.nothing(float(i), i + 1.0, 3), i + 1.0)
        assert decision.kind == "hold"
    assert control.table == control.promoted.lengths


def test_a_decision_says_what_a_person_needs_afterwards() -> None:
    log = drive(controller(promoted(0, BAD)), FakeEngine(GOOD), 10)
    swap = next(d for _, _, d in log if d.kind == "swap")
    assert "batch size 16" in swap.reason
    assert swap.predicted_gain > 0.02
    assert {"batch_size", "best_draft_length", "survival_1", "doubt"} <= set(swap.evidence)
    json.dumps(swap.to_dict())


def test_the_state_is_plain_json() -> None:
    control = controller()
    drive(control, FakeEngine(GOOD), 10)
    assert json.loads(json.dumps(control.state()))["table"] == list(control.table)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_a_replay_decides_the_same_and_never_leaves_the_envelope(seed: int) -> None:
    rng = np.random.default_rng(seed)
    allowed = rng.random((SIZE + 1, 4)) < 0.7
    allowed[:, 1] = True
    chance = rng.uniform(0, 1, 3)

    def source() -> Promoted:
        return promoted(1, tuple(np.cumprod(chance)), lambda b, k: bool(allowed[b, k]))

    first, again = controller(source(), seed=seed), controller(source(), seed=seed)
    slower = rng.uniform(0.5, 2.0, (SIZE + 1, 4))
    engine = FakeEngine(GOOD, 16, lambda b, k: float(slower[b, k]), seed=seed)
    decision = first.last_decision
    for i in range(50):
        engine.batch_size = int(rng.integers(1, SIZE + 1))
        engine.survival = (
            tuple(np.cumprod(rng.uniform(0, 1, 3))) if i % 20 == 0 else engine.survival
        )
        engine.stalls = 4 if rng.random() < 0.05 else 0
        seen = engine.observe(first.table, decision, float(i))
        decision = first.tick(seen, i + 1.0)
        back = LiveObservation.from_dict(json.loads(json.dumps(seen.to_dict())))
        assert again.tick(back, i + 1.0) == decision
        assert all(allowed[b, k] or first.table == first.boot_lengths
                   for b, k in enumerate(first.table, 1))  # fmt: skip
        if decision.lengths is not None and decision.kind == "swap":
            assert all(allowed[b, k] for b, k in enumerate(decision.lengths, 1))
    assert first.state() == again.state()


def test_a_table_outside_its_envelope_is_refused() -> None:
    with pytest.raises(CoreError, match="envelope"):
        promoted(3, GOOD, lambda b, k: b < 30 or k < 3)
    with pytest.raises(CoreError, match="max_num_seqs"):
        Promoted((1, 1), (0, 1), Times(), counts(GOOD), lambda b, k: True, 3, 3)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(CoreError, match="explore_rate"):
        ControllerSettings(explore_rate=2.0)
    with pytest.raises(CoreError, match="settle_s"):
        ControllerSettings(settle_s=-1.0)


def test_a_burst_in_which_everything_is_slow_changes_no_table() -> None:
    """The length in force is the only one seen while requests pour in; its slowness is common."""
    survival = (0.6, 0.36, 0.1)  # at 16 requests K=2 is 2 % better than K=3
    control, engine = controller(promoted(2, survival)), FakeEngine(survival)
    engine.slower = lambda b, k: 1.4
    decisions = [d for _, _, d in drive(control, engine, 3)]
    assert [d.lengths for d in decisions if d.kind == "swap"] == []
    assert any(d.kind == "explore" for d in decisions)  # it looks instead
