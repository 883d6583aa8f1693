"""Step times brought to one context length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.context import at_context, brought_to, pooled_slopes, slope_s_per_tok
from tabletune.core.errors import CoreError
from tabletune.core.step_time import estimate_step_time


@given(
    st.floats(1e-3, 5e-2),
    st.floats(0, 5e-6),
    st.integers(12, 200),
    st.integers(0, 2**32 - 1),
)
def test_the_slope_is_found_in_noise(base: float, slope: float, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    context = np.linspace(128, 1128, count)
    samples = base + slope * context + rng.normal(0, 0.01 * base, count)
    error = 4 * 0.01 * base / (np.std(context) * np.sqrt(count))
    assert slope_s_per_tok(samples, context) == pytest.approx(slope, abs=max(error, 1e-12) * 1.5)


def test_outliers_do_not_bend_it() -> None:
    context = np.linspace(128, 1128, 60)
    samples = 0.005 + 3e-6 * context
    samples[[50, 55, 59]] = 0.09
    assert slope_s_per_tok(samples, context) == pytest.approx(3e-6, rel=1e-6)


def test_growth_with_context_is_not_noise() -> None:
    rng = np.random.default_rng(1)
    context = np.tile(np.linspace(128, 1128, 40), 2)
    samples = 0.005 + 3e-6 * context + rng.normal(0, 5e-5, 80)
    raw = estimate_step_time(samples)
    brought = estimate_step_time(at_context(samples, context, 384))
    assert brought.relative_halfwidth < raw.relative_halfwidth / 4
    assert brought.step_time_s == pytest.approx(0.005 + 3e-6 * 384, rel=0.01)


def test_a_falling_trend_is_not_believed() -> None:
    context = np.linspace(128, 1128, 40)
    assert slope_s_per_tok(0.02 - 1e-6 * context, context) == 0.0


@pytest.mark.parametrize("context", [np.full(40, 300.0), np.linspace(300, 320, 40)])
def test_a_short_range_gives_no_slope(context: np.ndarray) -> None:
    samples = np.linspace(0.004, 0.006, 40)
    np.testing.assert_array_equal(at_context(samples, context, 1000), samples)


def test_few_samples_give_no_slope() -> None:
    assert slope_s_per_tok(np.linspace(1, 2, 8), np.linspace(0, 1000, 8)) == 0.0


def test_each_sample_needs_its_context() -> None:
    with pytest.raises(CoreError, match="one value for each of 3 samples"):
        slope_s_per_tok([1.0, 2.0, 3.0], [1.0])


def profile_with_drift(
    seed: int,
) -> tuple[dict[tuple[int, int], tuple[np.ndarray, np.ndarray]], dict[int, float]]:
    """24 steps of each cell at rising contexts, each with a drift of the host of its own."""
    rng = np.random.default_rng(seed)
    truth = {0: 17e-9, 2: 34e-9, 4: 45e-9}
    cells = {}
    for b in (16, 32, 48, 64, 80, 96, 112, 128):
        for k, per_request in truth.items():
            context = np.linspace(130 + 60 * k, 330 + 60 * k, 24)
            drift = 1 + rng.normal(0, 0.04) * np.linspace(-0.5, 0.5, 24)
            steps = (0.005 + 4e-5 * b) * drift + per_request * b * (context - 384)
            cells[b, k] = (steps * rng.normal(1, 0.01, 24), context)
    return cells, truth


def test_a_drift_of_the_host_is_not_a_slope() -> None:
    by_all, by_own = list[float](), list[float]()
    for seed in range(20):
        cells, truth = profile_with_drift(seed)
        slopes = pooled_slopes(cells)
        brought = brought_to(cells, 384)
        for (b, k), (samples, context) in cells.items():
            assert slopes[b, k] / b == pytest.approx(truth[k], abs=25e-9)
            at_reference_s = 0.005 + 4e-5 * b
            by_all.append(float(np.median(brought[b, k])) / at_reference_s - 1)
            by_own.append(float(np.median(at_context(samples, context, 384))) / at_reference_s - 1)
    # What matters is the step time at the reference.
    assert np.std(by_all) < 0.6 * np.std(by_own)
    assert abs(np.mean(by_all)) < 0.003


def test_a_length_of_few_batch_sizes_takes_the_slope_of_all() -> None:
    context = np.linspace(130, 400, 24)
    cells = {(b, 1): (0.005 + 30e-9 * b * context, context) for b in (8, 16, 32, 64)}
    cells[8, 3] = (np.full(4, 0.006), np.full(4, 300.0))
    slopes = pooled_slopes(cells)
    assert slopes[8, 3] == pytest.approx(8 * 30e-9)
    assert brought_to(cells, 400)[8, 3] == pytest.approx(0.006 + 8 * 30e-9 * 100)
    assert pooled_slopes({(8, 3): cells[8, 3]}) == {(8, 3): 0.0}
    assert brought_to({}, 400) == {}
