"""Throughput ratios and their intervals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.bootstrap import (
    RatioEstimate,
    Windows,
    product_interval,
    ratio_interval,
    worst,
)
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


RATES = st.lists(st.floats(10, 1000), min_size=2, max_size=12)
PAIRS = RATES.flatmap(
    lambda top: st.builds(
        Windows,
        st.just(top),
        st.lists(st.floats(10, 1000), min_size=len(top), max_size=len(top)),
        st.just(True),
    )
)
FACTORS = st.one_of(PAIRS, st.builds(Windows, RATES, RATES, st.just(False)))


def _product(*factors: Windows, seed: int = 3) -> RatioEstimate:
    return product_interval(factors, rng=np.random.default_rng(seed), resamples=300)


@given(FACTORS)
def test_a_product_of_one_is_the_ratio(factor: Windows) -> None:
    rng = np.random.default_rng(3)
    alone = ratio_interval(
        factor.numerator, factor.denominator, paired=factor.paired, rng=rng, resamples=300
    )
    assert _product(factor) == alone


@given(FACTORS, FACTORS)
def test_a_product_is_the_product_of_its_ratios_and_lies_in_its_interval(
    one: Windows, other: Windows
) -> None:
    found = _product(one, other)
    assert found.ratio == pytest.approx(_product(one).ratio * _product(other).ratio)
    assert found.low <= found.ratio <= found.high


@given(FACTORS, st.integers(2, 6), st.floats(0.1, 10))
def test_a_factor_that_never_scatters_shifts_the_interval_and_costs_nothing(
    factor: Windows, windows: int, ratio: float
) -> None:
    alone = _product(factor)
    found = _product(factor, Windows([100 * ratio] * windows, [100] * windows))
    if alone.high > alone.low * (1 + 1e-9):  # else the fewest windows count
        assert found.low == pytest.approx(alone.low * ratio)
        assert found.high == pytest.approx(alone.high * ratio)


@given(FACTORS, st.floats(0.01, 100))
def test_units_do_not_matter(factor: Windows, scale: float) -> None:
    scaled = Windows(
        np.array(factor.numerator) * scale, np.array(factor.denominator) * scale, factor.paired
    )
    one, other = _product(factor), _product(scaled)
    assert other.low == pytest.approx(one.low)
    assert other.high == pytest.approx(one.high)


@pytest.mark.parametrize(("many", "few"), [(12, 3), (3, 3), (6, 2), (20, 4)])
def test_the_interval_of_a_product_covers_it(many: int, few: int) -> None:
    rng, hits, runs = np.random.default_rng(many), 0, 400
    for _ in range(runs):
        text = np.exp(0.3 * rng.standard_normal(many))
        found = product_interval(
            [
                Windows(
                    120 * text * (1 + 0.04 * rng.standard_normal(many)),
                    100 * text * (1 + 0.04 * rng.standard_normal(many)),
                ),
                Windows(
                    90 * (1 + 0.01 * rng.standard_normal(few)),
                    100 * (1 + 0.01 * rng.standard_normal(few)),
                ),
            ],
            rng=rng,
            resamples=1000,
        )
        hits += found.low <= 1.2 * 0.9 <= found.high
    assert hits / runs > 0.92


def test_a_quiet_factor_of_few_windows_hardly_widens() -> None:
    rng = np.random.default_rng(5)
    loud = Windows(110 + 9 * rng.standard_normal(20), 100 + 9 * rng.standard_normal(20))
    quiet = Windows(100 + 0.5 * rng.standard_normal(3), 100 + 0.5 * rng.standard_normal(3))
    alone, both = _product(loud), _product(loud, quiet)
    width = math.log(both.high / both.low) / math.log(alone.high / alone.low)
    assert 0.9 < width < 1.3


def test_no_factor_is_refused() -> None:
    with pytest.raises(CoreError, match="at least one"):
        product_interval([], rng=np.random.default_rng(0))
