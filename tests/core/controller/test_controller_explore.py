"""Probes: which, when, and never dearer than the account allows."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tabletune.core.controller.account import ExplorationAccount
from tabletune.core.controller.explore import _Option, _shortened, expected_improvement
from tabletune.core.controller.settings import ControllerSettings
from tests.core.controller.controller_scenes import (
    BAD,
    GOOD,
    FakeEngine,
    controller,
    drive,
    promoted,
)


@given(
    st.floats(0, 0.02),
    st.floats(0, 1.0),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 0.5)), max_size=60),
)
def test_in_any_span_of_time_no_more_is_spent_than_burst_and_rate_allow(
    rate: float, burst_s: float, moves: list[tuple[float, float]]
) -> None:
    account = ExplorationAccount(rate, burst_s)
    now_s, spent_s = [0.0], [0.0]
    for busy_s, cost_s in moves:
        account.fill(busy_s)
        pays = account.can_pay(cost_s)
        if pays:
            account.pay(cost_s)
        now_s.append(now_s[-1] + busy_s)
        spent_s.append(spent_s[-1] + (cost_s if pays else 0.0))
        for at_s, before_s in zip(now_s[:-1], spent_s[:-1], strict=True):
            assert spent_s[-1] - before_s <= burst_s + rate * (now_s[-1] - at_s) + 1e-9
    assert account.spent_s == pytest.approx(spent_s[-1])


def test_what_was_not_foreseen_has_to_be_filled_first() -> None:
    account = ExplorationAccount(0.01, 0.2)
    account.pay(0.5)
    account.fill(25.0)
    assert not account.can_pay(0.01)
    account.fill(10.0)
    assert account.can_pay(0.01)


def test_the_defaults_allow_one_percent_of_any_minute() -> None:
    settings = ControllerSettings()
    assert settings.explore_rate * 60 + settings.explore_burst_s <= 0.01 * 60 + 1e-12


def test_expected_improvement_against_a_simulation() -> None:
    rng = np.random.default_rng(0)
    for gain, sd in ((0.0, 0.1), (-0.1, 0.1), (0.05, 0.02), (-0.3, 0.1)):
        draws = np.maximum(rng.normal(gain, sd, 400_000), 0).mean() - max(gain, 0)
        found = expected_improvement(np.array([gain]), np.array([sd]))[0]
        assert found == pytest.approx(draws, abs=2e-4)
    unusable = expected_improvement(np.array([-np.inf, np.nan]), np.array([1.0, 1.0]))
    assert np.all(unusable < 1e-100)


def test_probes_become_rare_when_nothing_is_left_to_learn() -> None:
    control, engine = controller(), FakeEngine()
    log = drive(control, engine, 600)
    late = [d for at_s, _, d in log if at_s > 100 and d.kind == "explore"]
    assert len(late) <= 25
    assert not [d for at_s, _, d in log if at_s > 30 and d.kind == "swap"]


def test_without_drafts_a_probe_looks_from_time_to_time_and_finds_the_way_back() -> None:
    control, engine = controller(), FakeEngine(survival=BAD)
    drive(control, engine, 60)
    assert control.table[15] == 0
    worthless = drive(control, engine, 60, 60.0)
    probes = [(at_s, d) for at_s, _, d in worthless if d.kind == "explore"]
    assert 8 <= len(probes) <= 20
    assert all(k >= 1 and n >= 3 for _, d in probes for k, n in d.probe)
    cost_s = sum(d.evidence["cost_s"] for _, d in probes)
    assert cost_s < 0.003 * 60
    engine.survival = GOOD
    drive(control, engine, 15, 120.0)
    assert control.table[15] >= 2


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 32), st.floats(0.0, 0.9))
def test_probes_stay_inside_the_envelope_and_pass_no_forbidden_transition(
    seed: int, batch_size: int, chance: float
) -> None:
    rng = np.random.default_rng(seed)
    allowed = rng.random((33, 4)) < 0.6
    allowed[:, 2] = True
    source = promoted(
        2, (chance, chance**2, chance**3), lambda b, k: bool(allowed[b, k]), forbidden=((2, 3),)
    )
    control = controller(source, seed=seed)
    slower = rng.uniform(0.6, 1.4, 4)
    engine = FakeEngine(GOOD, batch_size, lambda b, k: float(slower[k]), seed=seed)
    for i in range(40):
        own = control.table[batch_size - 1]
        _, _, decision = drive(control, engine, 1, float(i))[0]
        before = own
        for k, _ in decision.probe:
            assert allowed[batch_size, k]
            assert {before, k} != {2, 3}
            before = k
        assert {before, own} != {2, 3}
        assert all(allowed[b, k] for b, k in enumerate(control.table, 1))
        assert all({a, b} != {2, 3} for a, b in pairwise(control.table))


def test_a_probe_is_shortened_to_what_is_left_but_not_to_a_stump() -> None:
    option = _Option(column=2, steps=24, cost_s=0.012, value=0.01)
    assert _shortened(option, 30) == option
    shorter = _shortened(option, 12)
    assert (shorter.steps, shorter.cost_s) == (12, pytest.approx(0.006))
    assert _shortened(option, 11).steps == 0
    assert _shortened(option, -3).steps == 0
