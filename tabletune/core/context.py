"""Step times brought to one context length.

A decode step reads the keys and values of everything before it, so step time rises with the
context: on an H200, at 100 requests of a 4B model, from 5.4 to 8.7 ms between 130 and 1,150
tokens. Samples of one cell are taken while the context grows; left as they are, that growth
looks like noise, and cells measured later look slower than others.
"""

from __future__ import annotations

import numpy as np

from tabletune.core.errors import CoreError
from tabletune.core.words import ArrayLike, FloatArray

_FEWEST = 12  # samples from which a slope is worth fitting
_SHORTEST_TOK = 32.0  # range of context below which it is not
_CLIP = 4.0  # robust standard deviations beyond which a sample does not count for the fit
_ROUNDS = 4


def slope_s_per_tok(samples_s: ArrayLike, context_tok: ArrayLike) -> float:
    """Seconds per step and token of context, from one cell's samples; never below 0.

    samples_s, context_tok: float64[n]. 0 where there are fewer than 12 samples or they span
    less than 32 tokens. Least squares, with far outliers clipped in rounds.

    >>> context = np.arange(100.0, 600.0, 10.0)
    >>> round(slope_s_per_tok(0.004 + 2e-6 * context, context) * 1e6, 3)
    2.0
    """
    samples = np.asarray(samples_s, dtype=np.float64)
    context = np.asarray(context_tok, dtype=np.float64)
    if samples.shape != context.shape or samples.ndim != 1:
        raise CoreError(
            "context_tok", f"one value for each of {samples.size} samples", context.size, "pass all"
        )
    if samples.size < _FEWEST or float(np.ptp(context)) < _SHORTEST_TOK:
        return 0.0
    kept = np.ones(samples.shape, dtype=np.bool_)
    slope = 0.0
    for _ in range(_ROUNDS):
        slope, offset = (float(c) for c in np.polyfit(context[kept], samples[kept], 1))
        residual = samples - offset - slope * context
        middle = float(np.median(residual))
        spread = 1.4826 * float(np.median(np.abs(residual - middle)))
        fitting = np.abs(residual - middle) <= max(_CLIP * spread, 1e-9)
        if np.array_equal(fitting, kept) or int(fitting.sum()) < _FEWEST:
            break
        kept = fitting
    return max(slope, 0.0)


def at_context(samples_s: ArrayLike, context_tok: ArrayLike, reference_tok: float) -> FloatArray:
    """The samples as they would be at `reference_tok` tokens of context, float64[n]."""
    samples = np.asarray(samples_s, dtype=np.float64)
    context = np.asarray(context_tok, dtype=np.float64)
    return samples + slope_s_per_tok(samples, context) * (reference_tok - context)
