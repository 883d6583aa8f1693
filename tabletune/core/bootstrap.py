"""Confidence intervals of throughput ratios from interleaved windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tabletune.core.errors import CoreError
from tabletune.core.quantiles import check_confidence, normal_cdf, student_halfwidth
from tabletune.core.words import ArrayLike, FloatArray

Name = TypeVar("Name")

_FEW = 10


@dataclass(frozen=True)
class RatioEstimate:
    """The ratio of two mean throughputs, and its confidence interval low..high."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Windows:
    """Throughput windows of two policies, whose ratio is asked for.

    numerator, denominator: float64[n] and float64[m], throughput (tok/s) per window of equal
    length, all > 0. paired: window i of both ran next to each other, so that slow drift of
    the machine cancels; needs n == m.
    """

    numerator: ArrayLike
    denominator: ArrayLike
    paired: bool = True


def ratio_interval(
    numerator_windows: ArrayLike,
    denominator_windows: ArrayLike,
    *,
    rng: np.random.Generator,
    paired: bool = True,
    confidence: float = 0.95,
    resamples: int = 4000,
) -> RatioEstimate:
    """mean(numerator) / mean(denominator) with a bootstrap interval.

    numerator_windows, denominator_windows, paired: see `Windows`. Pairs are resampled together.
    The percentiles are widened for few windows as a Student interval would be (expanded
    percentile bootstrap; Hesterberg 2015, "What teachers should know about the bootstrap").
    Below 10 windows resampling cannot reach far enough: there the interval is widened to that
    of Student's t on the logarithms.
    Raises CoreError for fewer than 2 windows, unequal pairs, or a throughput that is not > 0.

    >>> rng = np.random.default_rng(0)
    >>> ratio_interval([110, 99, 121], [100, 90, 110], rng=rng).ratio
    1.1
    """
    windows = Windows(numerator_windows, denominator_windows, paired)
    return product_interval([windows], rng=rng, confidence=confidence, resamples=resamples)


def product_interval(
    factors: Sequence[Windows],
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
    resamples: int = 4000,
) -> RatioEstimate:
    """The product of several ratios of means, a/b · b'/c, with one bootstrap interval.

    For policies that were never measured by one instrument: a over b by the one, b over c by
    the other. Each factor is resampled on its own. The interval is widened for few windows as
    in `ratio_interval`, by the degrees of freedom of the whole (Welch and Satterthwaite): a
    factor of few windows costs little where it hardly scatters.
    Raises CoreError as `ratio_interval`, and for no factor.

    >>> rng = np.random.default_rng(0)
    >>> parts = [Windows([120, 132], [100, 110]), Windows([50, 55], [100, 110])]
    >>> product_interval(parts, rng=rng).ratio
    0.6
    """
    check_confidence(confidence)
    if not factors:
        raise CoreError("factors", "at least one", list(factors), "pass the windows of a ratio")
    drawn, ratio = np.ones(resamples), 1.0
    variances, degrees = list[float](), list[int]()
    for windows in factors:
        top = _windows("numerator_windows", windows.numerator)
        bottom = _windows("denominator_windows", windows.denominator)
        _check_pairs(top, bottom, windows.paired)
        picks = rng.integers(top.size, size=(resamples, top.size))
        other = picks
        if not windows.paired:
            other = rng.integers(bottom.size, size=(resamples, bottom.size))
        drawn *= top[picks].mean(axis=1) / bottom[other].mean(axis=1)
        ratio *= float(top.mean() / bottom.mean())
        variances.append(_log_variance(top, bottom, windows.paired))
        degrees.append(int(min(top.size, bottom.size)) - 1)
    freedom = _satterthwaite(variances, degrees)
    halfwidth = student_halfwidth(confidence, freedom)
    tail = normal_cdf(-halfwidth * math.sqrt((freedom + 1) / freedom))
    low, high = (float(q) for q in np.quantile(drawn, [tail, 1 - tail]))
    if freedom + 1 < _FEW:
        factor = math.exp(halfwidth * math.sqrt(sum(variances)))
        low, high = min(low, ratio / factor), max(high, ratio * factor)
    return RatioEstimate(ratio, min(low, ratio), max(high, ratio))


def worst(estimates: Mapping[Name, RatioEstimate]) -> tuple[Name, RatioEstimate]:
    """The entry whose interval reaches lowest: where a candidate may be worst.

    >>> worst({1: RatioEstimate(1.0, 0.9, 1.1), 8: RatioEstimate(0.99, 0.98, 1.0)})
    (1, RatioEstimate(ratio=1.0, low=0.9, high=1.1))
    """
    if not estimates:
        raise CoreError("estimates", "at least one", dict(estimates), "run the comparison first")
    name = min(estimates, key=lambda key: estimates[key].low)
    return name, estimates[name]


def _check_pairs(top: FloatArray, bottom: FloatArray, paired: bool) -> None:
    if paired and top.size != bottom.size:
        raise CoreError(
            "paired windows",
            f"as many of both ({top.size})",
            bottom.size,
            "drop the unfinished pair, or pass paired=False",
        )


def _log_variance(top: FloatArray, bottom: FloatArray, paired: bool) -> float:
    """Squared standard error of the logarithm of the ratio."""
    logs = (np.log(top / bottom),) if paired else (np.log(top), np.log(bottom))
    return sum(float(log.var(ddof=1)) / log.size for log in logs)


def _satterthwaite(variances: Sequence[float], degrees: Sequence[int]) -> int:
    """Degrees of freedom of a sum of independent terms, rounded down."""
    whole = sum(variances)
    spread = sum((v / whole) ** 2 / d for v, d in zip(variances, degrees, strict=True) if whole)
    # Rounding must not take a degree from a single factor.
    return max(1, math.floor(1 / spread + 1e-9)) if spread else min(degrees)


def _windows(name: str, values: ArrayLike) -> FloatArray:
    windows = np.array(values, dtype=np.float64)
    if windows.ndim != 1 or windows.size < 2:
        raise CoreError(name, "at least 2 windows", windows.tolist(), "measure more windows")
    if not np.all(np.isfinite(windows)) or np.any(windows <= 0):
        raise CoreError(
            name, "finite throughputs > 0", windows.tolist(), "leave out windows that did not run"
        )
    return windows
