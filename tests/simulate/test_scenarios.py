"""The scenarios: what they believe and what is true, the kinds' numbers, and the score."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabletune.core.errors import NotCoveredError
from tabletune.core.survival import survival
from tabletune.simulate.loads import ClosedLoop
from tabletune.simulate.policy import FixedPolicy, Observation, TablePolicy
from tabletune.simulate.scenarios import kinds, named
from tabletune.simulate.scenarios.roster import rivals
from tabletune.simulate.scenarios.scenario import Scenario, Window
from tabletune.simulate.scenarios.score import expected_share, probe_cost
from tabletune.simulate.scenarios.tables import GridStepTimes, random_lengths
from tests.simulate.scenes import plain_times

COST = named.serving_cost(plain_times(32))
LOAD = ClosedLoop(12)


def test_the_kinds_have_the_stated_mean_accepted_lengths() -> None:
    for kind, stated in ((kinds.CODE, 3.52), (kinds.CHAT, 2.56), (kinds.MATH, 3.78)):
        chance = kind.survival[0]
        assert sum(chance**i for i in range(8)) == pytest.approx(stated, abs=0.002)
        assert kind.survival == pytest.approx([chance**i for i in range(1, 5)], abs=2e-4)


def test_a_prior_is_what_an_engine_would_have_counted() -> None:
    counted = survival(kinds.CODE.counts())
    assert 1 + np.cumsum(counted) == pytest.approx(kinds.CODE.expected_tokens()[1:])
    assert counted[0] < kinds.CODE.survival[0]  # bad requests take more steps


@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_random_tables_cover_every_batch_size(seed: int, largest: int, longest: int) -> None:
    lengths = random_lengths(largest, longest, np.random.default_rng(seed))
    assert len(lengths) == largest
    assert min(lengths) >= 0
    assert max(lengths) <= longest
    changes = sum(a != b for a, b in itertools.pairwise(lengths))
    assert changes <= 5


def test_random_tables_differ_by_seed_and_are_repeatable() -> None:
    starts = [named.mistuned(COST, LOAD, seed).start_lengths for seed in (1, 1, 2, 3, 4)]
    assert starts[0] == starts[1]
    assert len(set(starts)) == 4


def test_a_grid_of_step_times() -> None:
    grid = GridStepTimes(np.array([[np.nan] * 3, [0.004, 0.005, np.nan], [0.006, np.nan, np.nan]]))
    assert grid.draft_lengths == (0, 1)
    assert grid.step_time_s(1, 1) == 0.005
    assert [grid.covered(b, k) for b, k in ((1, 0), (2, 1), (3, 0), (0, 0), (1, 9))] == [
        *(True, False, False, False, False)
    ]
    with pytest.raises(NotCoveredError):
        grid.step_time_s(2, 1)


@pytest.mark.parametrize("blocks", [False, True])
def test_misprofiled_beliefs_stay_within_the_stated_error_and_the_engine_is_the_same(
    blocks: bool,
) -> None:
    scene = named.misprofiled(COST, LOAD, 5, blocks=blocks)
    ratios = np.array(
        [
            [scene.surface.step_time_s(b, k) / COST.step_time_s[b, k] for k in range(5)]
            for b in range(1, 33)
        ]
    )
    assert scene.cost is COST
    assert ratios.min() >= 0.6
    assert ratios.max() <= 1.4
    assert 0.1 < np.mean(~np.isclose(ratios, 1.0)) < 0.9
    jumps = np.abs(np.diff(ratios[8:], axis=0)).max()
    assert (jumps > 0.12) == blocks


def test_an_unquiet_host_has_a_profile_that_scatters_and_steps_that_drift() -> None:
    scene = named.unquiet_host(COST, LOAD, 3)
    ratios = np.array(
        [
            [scene.surface.step_time_s(b, k) / COST.step_time_s[b, k] for k in range(5)]
            for b in range(1, 33)
        ]
    )
    assert 0.95 <= ratios.min() < 0.97
    assert 1.03 < ratios.max() <= 1.05
    assert np.array_equal(scene.cost.step_time_s, COST.step_time_s, equal_nan=True)
    assert scene.cost.noise.host_sd > 0
    assert scene.cost.prefill_step_s > 0.01


def test_a_switch_changes_the_tuned_table_and_the_stale_one_lags_a_phase() -> None:
    scene = named.switching(COST, LOAD, 1, (kinds.CODE, kinds.FOREIGN, kinds.CODE))
    code, foreign = (scene.tuned_lengths(k) for k in (kinds.CODE, kinds.FOREIGN))
    assert code[0] > 0
    assert set(foreign) == {0}
    observation = Observation()
    for at_s, tuned, stale in ((5.0, code, code), (65.0, foreign, code), (125.0, code, foreign)):
        observation.now_s = at_s
        assert scene.tuned().draft_length(1, observation) == tuned[0]
        assert scene.stale().draft_length(1, observation) == stale[0]


def _score(scene: Scenario, lengths: list[int]) -> tuple[float, float]:
    """(expected share, measured share) of a table against the tuned one."""
    window = scene.windows[0]
    tuned = scene.engine(scene.tuned()).run(scene.end_s)
    result = scene.engine(TablePolicy(lengths)).run(scene.end_s)
    measured = result.throughput_tok_s(window.from_s) / tuned.throughput_tok_s(window.from_s)
    reference = scene.tuned_lengths(kinds.CODE)
    return expected_share(result, scene, window, reference), measured


@pytest.mark.parametrize("length", [0, 1, 2, 4])
def test_the_expected_share_is_the_measured_one_without_its_noise(length: int) -> None:
    scene = named.steady(COST, ClosedLoop(24), 3, duration_s=150.0)
    expected, measured = _score(scene, [length] * 32)
    assert expected == pytest.approx(measured, abs=0.02)
    assert _score(scene, list(scene.tuned_lengths(kinds.CODE)))[0] == 1.0


def test_probe_steps_are_counted_and_cost_what_the_table_loses() -> None:
    scene = named.steady(COST, ClosedLoop(24), 3, duration_s=40.0)
    window = Window("", 20.0, 40.0)
    tuned = scene.tuned_lengths(kinds.CODE)
    result = scene.engine(FixedPolicy(0)).run(40.0)
    share, cost = probe_cost(result, scene, window, [(0.0, tuned)])
    assert share == pytest.approx(1.0, abs=0.01)
    assert cost == pytest.approx(1 - expected_share(result, scene, window, tuned), abs=0.01)
    assert probe_cost(result, scene, window, [(0.0, tuned), (10.0, (0,) * 32)]) == (0.0, 0.0)


def test_every_rival_runs() -> None:
    scene = named.steady(COST, LOAD, 1, duration_s=22.0)
    for name, make in rivals(scene).items():
        result = scene.engine(make()).run(scene.end_s)
        share = expected_share(result, scene, scene.windows[0], scene.tuned_lengths(kinds.CODE))
        assert 0.1 < share <= 1.01, name
