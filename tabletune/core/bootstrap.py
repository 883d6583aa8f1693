"""Confidence interval of a throughput ratio from interleaved windows."""

from __future__ import annotations

import math
from collections.abc import Mapping
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

    numerator_windows, denominator_windows: float64[n] and float64[m], throughput (tok/s) per
    window of equal length, all > 0. paired: window i of both ran next to each other, so pairs
    are resampled together and slow drift of the machine cancels; needs n == m.
    The percentiles are widened for few windows as a Student interval would be (expanded
    percentile bootstrap; Hesterberg 2015, "What teachers should know about the bootstrap").
    Below 10 windows resampling cannot reach far enough: there the interval is widened to that
    of Student's t on the logarithms.
    Raises CoreError for fewer than 2 windows, unequal pairs, or a throughput that is not > 0.

    >>> rng = np.random.default_rng(0)
    >>> ratio_interval([110, 99, 121], [100, 90, 110], rng=rng).ratio
    1.1
    """
    check_confidence(confidence)
    top = _windows("numerator_windows", numerator_windows)
    bottom = _windows("denominator_windows", denominator_windows)
    if paired and top.size != bottom.size:
        raise CoreError(
            "paired windows",
            f"as many of both ({top.size})",
            bottom.size,
            "drop the unfinished pair, or pass paired=False",
        )
    picks = rng.integers(top.size, size=(resamples, top.size))
    other = picks if paired else rng.integers(bottom.size, size=(resamples, bottom.size))
    ratios = top[picks].mean(axis=1) / bottom[other].mean(axis=1)
    fewest = int(min(top.size, bottom.size))
    reach = student_halfwidth(confidence, fewest - 1) * math.sqrt(fewest / (fewest - 1))
    tail = normal_cdf(-reach)
    ratio = float(top.mean() / bottom.mean())
    low, high = (float(q) for q in np.quantile(ratios, [tail, 1 - tail]))
    if fewest < _FEW:
        factor = math.exp(
            student_halfwidth(confidence, fewest - 1) * _log_error(top, bottom, paired)
        )
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


def _log_error(top: FloatArray, bottom: FloatArray, paired: bool) -> float:
    """Standard error of the logarithm of the ratio."""
    logs = (np.log(top / bottom),) if paired else (np.log(top), np.log(bottom))
    return math.sqrt(sum(float(log.var(ddof=1)) / log.size for log in logs))


def _windows(name: str, values: ArrayLike) -> FloatArray:
    windows = np.array(values, dtype=np.float64)
    if windows.ndim != 1 or windows.size < 2:
        raise CoreError(name, "at least 2 windows", windows.tolist(), "measure more windows")
    if not np.all(np.isfinite(windows)) or np.any(windows <= 0):
        raise CoreError(
            name, "finite throughputs > 0", windows.tolist(), "leave out windows that did not run"
        )
    return windows
