"""Step times brought to one context length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.context import at_context, slope_s_per_tok
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
