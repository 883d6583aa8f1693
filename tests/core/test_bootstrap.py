"""Throughput ratios and their intervals."""

import numpy as np
import pytest

from tabletune.core.bootstrap import RatioEstimate, ratio_interval, worst
from tabletune.core.errors import CoreError


def _coverage(windows: int, paired: bool, runs: int = 400) -> float:
    rng, hits = np.random.default_rng(windows), 0
    for _ in range(runs):
        drift = np.exp(np.cumsum(0.05 * rng.standard_normal(windows))) if paired else 1.0
        top = 110 * drift * (1 + 0.03 * rng.standard_normal(windows))
        bottom = 100 * drift * (1 + 0.03 * rng.standard_normal(windows))
        found = ratio_interval(top, bottom, paired=paired, rng=rng, resamples=1000)
        hits += found.low <= 1.1 <= found.high
    return hits / runs


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("windows", [3, 5, 8, 12, 30])
def test_the_interval_covers_the_true_ratio(windows: int, paired: bool) -> None:
    assert _coverage(windows, paired) > 0.92


def test_pairing_cancels_drift() -> None:
    rng = np.random.default_rng(0)
    drift = np.linspace(1, 2, 20)
    top = 110 * drift * (1 + 0.01 * rng.standard_normal(20))
    bottom = 100 * drift * (1 + 0.01 * rng.standard_normal(20))
    together = ratio_interval(top, bottom, rng=rng)
    apart = ratio_interval(top, bottom, rng=rng, paired=False)
    assert together.high - together.low < (apart.high - apart.low) / 5


def test_the_same_seed_gives_the_same_interval() -> None:
    top, bottom = [101, 99, 108, 104], [100, 103, 99, 97]
    one, other = (ratio_interval(top, bottom, rng=np.random.default_rng(7)) for _ in range(2))
    assert one == other
    assert one.low < one.ratio < one.high


def test_a_constant_ratio_has_no_width() -> None:
    found = ratio_interval([110, 220, 330], [100, 200, 300], rng=np.random.default_rng(0))
    assert (found.low, found.high) == (pytest.approx(1.1), pytest.approx(1.1))


@pytest.mark.parametrize(
    ("top", "bottom", "paired"),
    [
        ([1.0], [1.0], True),
        ([1.0, 2.0], [1.0, 2.0, 3.0], True),
        ([1.0, 0.0], [1.0, 1.0], True),
        ([1.0, float("nan")], [1.0, 1.0], True),
        ([1.0, 2.0], [1.0], False),
    ],
)
def test_unusable_windows_are_refused(top, bottom, paired) -> None:
    with pytest.raises(CoreError):
        ratio_interval(top, bottom, paired=paired, rng=np.random.default_rng(0))


def test_unequal_numbers_of_windows_are_fine_unpaired() -> None:
    found = ratio_interval([1, 2], [1, 2, 3], paired=False, rng=np.random.default_rng(0))
    assert found.ratio == 0.75


def test_worst_is_the_lowest_reaching_interval() -> None:
    estimates = {8: RatioEstimate(0.99, 0.985, 1.0), 32: RatioEstimate(1.0, 0.95, 1.05)}
    assert worst(estimates) == (32, estimates[32])
    with pytest.raises(CoreError):
        worst({})
