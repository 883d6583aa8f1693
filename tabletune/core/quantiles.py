"""Quantiles of the normal, Student and binomial distributions, without SciPy."""

from __future__ import annotations

import math
from statistics import NormalDist

from tabletune.core.errors import CoreError

_NORMAL = NormalDist()


def check_confidence(confidence: float) -> float:
    """Return `confidence`, or raise CoreError unless it lies strictly between 0 and 1."""
    if not 0.0 < confidence < 1.0:
        raise CoreError(
            "confidence", "a number between 0 and 1", confidence, "pass 0.95 for 95 percent"
        )
    return confidence


def normal_halfwidth(confidence: float) -> float:
    """Standard deviations on each side of the mean that hold `confidence` of a normal.

    >>> round(normal_halfwidth(0.95), 4)
    1.96
    """
    return _NORMAL.inv_cdf(0.5 + check_confidence(confidence) / 2)


def normal_cdf(x: float) -> float:
    """P(Z <= x) of the standard normal."""
    return _NORMAL.cdf(x)


def student_halfwidth(confidence: float, degrees: int) -> float:
    """The same for Student's t with `degrees` degrees of freedom, by bisection.

    >>> [round(student_halfwidth(0.95, n), 3) for n in (1, 2, 5, 30)]
    [12.706, 4.303, 2.571, 2.042]
    """
    if degrees < 1:
        raise CoreError("degrees of freedom", "at least 1", degrees, "take more samples")
    check_confidence(confidence)
    low, high = 0.0, 1.0
    while _student_central(high, degrees) < confidence:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2
        if _student_central(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return high


def _student_central(t: float, degrees: int) -> float:
    """P(|T| <= t): the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    if degrees > 200:  # the normal is exact to three digits there and the series long
        return 2.0 * _NORMAL.cdf(t) - 1.0
    theta = math.atan(t / math.sqrt(degrees))
    cos2 = math.cos(theta) ** 2
    odd = degrees % 2 == 1
    term = math.cos(theta) if odd else 1.0
    total = 0.0 if degrees == 1 else term
    for j in range(3 if odd else 2, degrees - 1, 2):
        term *= cos2 * (j - 1) / j
        total += term
    if odd:
        return 2.0 / math.pi * (theta + math.sin(theta) * total)
    return math.sin(theta) * total


def median_rank(sample_count: int, confidence: float) -> int | None:
    """The rank r (from 1) for which the r-th smallest and r-th largest sample bound the median.

    Distribution-free: P(fewer than r samples lie below the median) is binomial(n, 1/2).
    None where even the smallest and largest are too few (below 6 samples at 95 %).

    >>> median_rank(5, 0.95), median_rank(6, 0.95), median_rank(80, 0.95)
    (None, 1, 31)
    """
    tail = (1.0 - check_confidence(confidence)) / 2
    if sample_count > 500:
        spread = normal_halfwidth(confidence) * math.sqrt(sample_count) / 2
        return max(1, math.floor(sample_count / 2 - spread))
    limit = tail * 2.0**sample_count
    cumulated, rank = 0, 0
    while rank <= sample_count:
        cumulated += math.comb(sample_count, rank)
        if cumulated > limit:
            break
        rank += 1
    return rank or None
