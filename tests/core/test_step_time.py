"""Step-time estimates: robust, honest about their uncertainty."""

import json
import math
import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabletune.core.errors import CoreError
from tabletune.core.step_time import StepTimeEstimate, estimate_step_time

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
RECORDED = json.loads(
    (GOLDEN / "h200_vllm0.32.0_qwen3-4b_eagle3_step_times.json").read_text("utf-8")
)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(40, 300),
    outliers=st.floats(0, 0.08),
    size=st.floats(2, 1000),
    kind=st.sampled_from(["constant", "mixed"]),
)
def test_outliers_far_above_do_not_move_it(seed, count, outliers, size, kind) -> None:
    """Up to 8 % of pauses, up to 1000 times as long, move the estimate by a few percent.

    At worst a mixed estimate counts each pause as twice the median: 8 % of 1 extra.
    """
    rng = np.random.default_rng(seed)
    samples = 0.005 * (1 + 0.02 * rng.standard_normal(count))
    hit = rng.permutation(count)[: int(outliers * count)]
    samples[hit] *= size
    estimate = estimate_step_time(samples, kind)
    assert estimate.step_time_s == pytest.approx(0.005, rel=0.10 if kind == "mixed" else 0.02)
    if size > 4:
        assert estimate.outlier_count == hit.size


@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=80), st.sampled_from([0.5, 2.0, 4.0]))
def test_it_scales_with_the_clock(samples: list[float], factor: float) -> None:
    for kind in ("constant", "mixed"):
        one = estimate_step_time(samples, kind)
        other = estimate_step_time(np.array(samples) * factor, kind)
        assert other.step_time_s == pytest.approx(one.step_time_s * factor)
        assert other.outlier_count == one.outlier_count


@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=200))
def test_the_interval_holds_the_estimate(samples: list[float]) -> None:
    for kind in ("constant", "mixed"):
        estimate = estimate_step_time(samples, kind)
        assert estimate.low_s <= estimate.step_time_s <= estimate.high_s
        assert estimate.sample_count == len(samples)


def _coverage(kind: str, make, truth: float, runs: int = 500) -> float:
    hits = 0
    for seed in range(runs):
        estimate = estimate_step_time(make(np.random.default_rng(seed)), kind)
        hits += estimate.low_s <= truth <= estimate.high_s
    return hits / runs


def test_constant_interval_covers_for_independent_steps() -> None:
    def skewed(rng: np.random.Generator) -> np.ndarray:
        return 0.004 + rng.exponential(0.001, 60)

    assert _coverage("constant", skewed, 0.004 + 0.001 * math.log(2)) > 0.93


def _autocorrelated(rng: np.random.Generator, count: int, correlation: float) -> np.ndarray:
    noise = rng.standard_normal(count) * math.sqrt(1 - correlation**2)
    series = np.empty(count)
    series[0] = rng.standard_normal()
    for i in range(1, count):
        series[i] = correlation * series[i - 1] + noise[i]
    return 0.005 * (1 + 0.03 * series)


@pytest.mark.parametrize("kind", ["constant", "mixed"])
def test_intervals_respect_autocorrelation(kind: str) -> None:
    coverage = _coverage(kind, lambda rng: _autocorrelated(rng, 240, 0.6), 0.005)
    assert coverage > 0.88


def test_mixed_is_the_mean_of_two_kinds_of_step() -> None:
    """A quarter of the steps verify proposals and take 2.5 times as long."""

    def steps(rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(240) < 0.25, 0.15, 0.06) * (1 + 0.02 * rng.standard_normal(240))

    truth = 0.75 * 0.06 + 0.25 * 0.15
    assert _coverage("mixed", steps, truth) > 0.90
    assert estimate_step_time(steps(np.random.default_rng(0)), "mixed").outlier_count == 0


def test_alternating_steps_count_as_pairs() -> None:
    """Asynchronous scheduling: 3 ms and 5 ms in turn are 4 ms, to a narrow interval."""
    rng = np.random.default_rng(5)
    steps = np.tile([0.003, 0.005], 40) * (1 + 0.01 * rng.standard_normal(80))
    estimate = estimate_step_time(steps)
    assert estimate.step_time_s == pytest.approx(0.004, rel=0.01)
    assert estimate.relative_halfwidth < 0.01


def test_alternating_steps_with_a_gap_still_count_as_pairs() -> None:
    """A pause in the middle shifts the pairs; it may not split the estimate."""
    steps = [0.003, 0.005] * 20 + [0.4] + [0.003, 0.005] * 20
    assert estimate_step_time(steps).step_time_s == pytest.approx(0.004)


def test_few_samples_give_wide_intervals() -> None:
    widths = [
        estimate_step_time([0.004, 0.0042, 0.0041, 0.00405, 0.00415, 0.0041][:n]).relative_halfwidth
        for n in (1, 2, 3, 6)
    ]
    assert widths[0] == 1.0
    assert widths == sorted(widths, reverse=True)


def test_a_negative_difference_is_kept_and_has_no_relative_width() -> None:
    estimate = estimate_step_time([-0.001, -0.002, 0.001])
    assert estimate.step_time_s == -0.001
    assert estimate.relative_halfwidth == math.inf
    assert StepTimeEstimate(math.nan, 0.0, 0.0, 1, 0).relative_halfwidth == math.inf


@pytest.mark.parametrize("samples", [[], [math.nan], [0.1, math.inf], [[0.1]]])
def test_unusable_samples_are_refused(samples) -> None:
    with pytest.raises(CoreError, match="step time samples"):
        estimate_step_time(samples)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(CoreError, match="'constant' or 'mixed'"):
        estimate_step_time([0.1], "average")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cell", RECORDED["raw"], ids=lambda c: f"{c['batch_size']}x{c['draft_length']}"
)
def test_recorded_cells_are_tight_and_near_their_mean(cell) -> None:
    samples = np.array(cell["step_times_s"])
    for kind in ("constant", "mixed"):
        estimate = estimate_step_time(samples, kind)
        calm = samples[samples < 1.5 * np.median(samples)]
        assert estimate.step_time_s == pytest.approx(calm.mean(), rel=0.015)
        assert estimate.relative_halfwidth < 0.05
