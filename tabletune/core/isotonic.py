"""Weighted isotonic regression: the nearest non-increasing sequence."""

from __future__ import annotations

import numpy as np

from tabletune.core.words import FloatArray


def non_increasing(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The non-increasing sequence nearest to `values` in weighted least squares.

    values, weights: float64[n], weights > 0. Returns float64[n]. Pool-adjacent-violators
    (Ayer et al. 1955): neighbours in the wrong order become their weighted mean.

    >>> non_increasing(np.array([0.5, 0.7, 0.2]), np.array([1.0, 3.0, 1.0])).round(4).tolist()
    [0.65, 0.65, 0.2]
    """
    means: list[float] = []
    masses: list[float] = []
    counts: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, mass, count = value, weight, 1
        while means and means[-1] < mean:
            total = masses[-1] + mass
            # In this form the pooled mean never leaves [left, right] by rounding.
            mean = means[-1] + (mean - means[-1]) * (mass / total)
            mass = total
            count += counts.pop()
            means.pop()
            masses.pop()
        means.append(mean)
        masses.append(mass)
        counts.append(count)
    return np.repeat(np.asarray(means, dtype=np.float64), counts)
