"""Step times: from a profile, wrong ones, prompts, context, drafts found."""

import numpy as np
import pytest

from tabletune.core.surface import StepTimeSurface
from tabletune.simulate.acceptance import AcceptanceModel
from tabletune.simulate.errors import SimulationError
from tabletune.simulate.lengths import FixedLength
from tabletune.simulate.loads import ClosedLoop, Trace
from tabletune.simulate.policy import FixedPolicy
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import (
    Noise,
    StepCost,
    cell_times,
    random_factors,
    step_times,
)
from tabletune.simulate.workload import Traffic, Workload
from tests.core.strategies import exact, stairs
from tests.simulate.scenes import constant_times, engine

CELLS = {(1, 0): 0.004, (8, 0): 0.006, (1, 2): 0.005, (4, 2): 0.008}


def test_a_surface_becomes_dense_and_keeps_what_is_not_covered() -> None:
    surface = StepTimeSurface.from_cells({c: exact(t) for c, t in CELLS.items()})
    times = step_times(surface, 8)
    assert times.shape == (9, 3)
    assert times[8, 0] == 0.006
    assert times[2, 2] == pytest.approx(0.006)
    assert np.isnan(times[5:, 2]).all()
    assert np.isnan(times[1:, 1]).all()
    assert np.allclose(cell_times(CELLS, 8), times, equal_nan=True)


def test_steps_without_a_graph_can_be_given_a_price() -> None:
    cells = {(b, 0): exact(0.004 + 0.001 * b) for b in (1, 2, 4)}
    surface = StepTimeSurface.from_cells(cells, stairs([1, 2, 4]))
    assert step_times(surface, 6, uncovered_factor=3.5)[6, 0] == pytest.approx(0.008 * 3.5)


def test_factors_slow_the_engine_and_leave_the_profile() -> None:
    profile = StepCost(constant_times(8))
    factors = np.ones((9, 5))
    factors[:, 3] = 1.4
    truth = profile.misprofiled(factors)
    assert truth.step_time_s[4, 3] == pytest.approx(0.014)
    assert profile.step_time_s[4, 3] == 0.010
    steps = engine(
        ClosedLoop(4), FixedPolicy(3), output=1000, cost=truth, settings=EngineSettings(8)
    ).run(1.0)
    decodes = steps.steps.decode_requests > 0
    assert steps.steps.step_time_s[decodes][1:] == pytest.approx(0.014)


def test_random_factors_hit_their_share_within_their_error() -> None:
    factors = random_factors((513, 8), 0.3, 0.4, np.random.default_rng(0))
    assert factors.shape == (513, 8)
    assert ((factors >= 0.6) & (factors <= 1.4)).all()
    assert (factors != 1.0).mean() == pytest.approx(0.3, abs=0.06)
    assert (factors[8:16] == factors[8]).all()


def test_prompt_tokens_add_to_a_step() -> None:
    cost = StepCost(constant_times(8), prefill_s_per_tok=1e-4, prefill_step_s=0.003)
    workload = Workload(
        Trace([0.0, 0.1], [50, 20], [40, 2]), (Traffic(FixedLength(1), FixedLength(1)),)
    )
    steps = engine(
        workload=workload, policy=FixedPolicy(0), cost=cost, settings=EngineSettings(8)
    ).run(0.3)
    prompts = steps.steps.prefill_tok > 0
    assert steps.steps.step_time_s[prompts] == pytest.approx([0.018, 0.015])
    assert steps.steps.step_time_s[~prompts] == pytest.approx(0.010)


def test_context_beyond_the_profiled_adds_to_a_step() -> None:
    cost = StepCost(constant_times(8), context_s_per_tok=1e-6, profiled_context_tok=100)
    steps = engine(
        ClosedLoop(2), FixedPolicy(0), prompt=300, output=500, cost=cost, settings=EngineSettings(8)
    ).run(1.0)
    # In step n two requests hold 300 + n tokens each: 400 + 2n more than profiled.
    expected = 0.010 + 1e-6 * (400 + 2 * np.arange(1, 50))
    assert steps.steps.step_time_s[1:50] == pytest.approx(expected)


def test_only_drafts_that_were_found_are_charged_where_asked() -> None:
    times = constant_times(8) + np.array([0.0, 0.001, 0.002, 0.003, 0.004])
    model = AcceptanceModel([0.5] * 4, proposal_rate=[0.5, 0.25, 0.25, 0.0])
    for by_drafted, expected in ((True, 0.011), (False, 0.014)):
        steps = engine(
            ClosedLoop(8),
            FixedPolicy(4),
            output=3000,
            models=[model],
            cost=StepCost(times, by_drafted=by_drafted),
            settings=EngineSettings(8),
        ).run(20.0)
        assert steps.steps.step_time_s[2:].mean() == pytest.approx(expected, rel=0.005)


def test_noise_has_mean_one_but_for_outliers() -> None:
    rng = np.random.default_rng(0)
    factors = Noise(0.2).draw(rng, 100_000)
    assert factors.mean() == pytest.approx(1.0, abs=0.003)
    assert factors.std() == pytest.approx(0.2, rel=0.02)
    assert (Noise().draw(rng, 50) == 1.0).all()
    outliers = Noise(0.0, outlier_rate=0.1, outlier_factor=6.0).draw(rng, 100_000)
    assert (outliers == 6.0).mean() == pytest.approx(0.1, abs=0.005)


def test_the_hosts_drift_has_its_spread_and_its_memory() -> None:
    noise = Noise(host_sd=0.08, host_steps=50.0, host_share=(1.0, 0.5))
    rng = np.random.default_rng(0)
    first = noise.drift(rng, 0.0, 100_000)
    assert first.std() == pytest.approx(0.08, rel=0.05)
    later = np.corrcoef(first[:-50], first[50:])[0, 1]
    assert later == pytest.approx(np.exp(-1.0), abs=0.05)
    assert abs(noise.drift(rng, 0.3, 1)[0] - 0.3 * np.exp(-1 / 50)) < 0.08
    assert [noise.felt(k) for k in (0, 1, 4)] == [1.0, 0.5, 0.5]
    assert Noise(host_sd=0.08).felt(3) == 1.0
    for length in (0, 1):
        factors = np.exp(noise.felt(length) * first + noise.mean_one(length))
        assert factors.mean() == pytest.approx(1.0, abs=0.002)
    for wrong in ({"host_sd": -0.1}, {"host_steps": 0.0}):
        with pytest.raises(SimulationError):
            Noise(**wrong)


@pytest.mark.parametrize("times", [np.zeros((3, 3)), np.full((3, 3), np.nan), np.ones(3)])
def test_impossible_step_times_are_refused(times: np.ndarray) -> None:
    with pytest.raises(SimulationError):
        StepCost(times)
