"""Step times brought to one context length.

A decode step reads the keys and values of everything before it, so step time rises with the
context: on an H200, at 100 requests of a 4B model, from 5.4 to 8.7 ms between 130 and 1,150
tokens. Samples of one cell are taken while the context grows; left as they are, that growth
looks like noise, and cells measured later look slower than others.

How much it rises is the work of one request times the requests, so it is one figure for each
draft length. Of single cells it is hardly known: their 24 to 120 steps are a fraction of a second,
and a host that is busier at the end of it than at the beginning looks like a slope (0 to 170 ns per
request and token in one profile, where 17 to 47 is the truth). So it is taken from all batch sizes
of a draft length together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tabletune.core.errors import CoreError
from tabletune.core.words import ArrayLike, FloatArray

_FEWEST = 12  # samples from which a slope is worth fitting
_SHORTEST_TOK = 32.0  # range of context below which it is not
_CLIP = 4.0  # robust standard deviations beyond which a sample does not count for the fit
_ROUNDS = 4
_LEAST_SPREAD = 1e-3  # of the step time

CellKey = tuple[int, int]
#: So many batch sizes tell how step time rises with the context better than a cell by itself.
TELLING_BATCH_SIZES = 3


def slope_s_per_tok(samples_s: ArrayLike, context_tok: ArrayLike) -> float:
    """Seconds per step and token of context, from one cell's samples; never below 0.

    samples_s, context_tok: float64[n]. 0 where there are fewer than 12 samples or they span
    less than 32 tokens. Least squares, with far outliers clipped in rounds.

    >>> context = np.arange(100.0, 600.0, 10.0)
    >>> round(slope_s_per_tok(0.004 + 2e-6 * context, context) * 1e6, 3)
    2.0
    """
    return max(_fit(samples_s, context_tok)[0], 0.0)


def pooled_slopes(cells: Mapping[CellKey, tuple[ArrayLike, ArrayLike]]) -> dict[CellKey, float]:
    """Seconds per step and token of context for every cell, from all of them; never below 0.

    cells: by (batch size, draft length), the samples in seconds and their contexts in tokens,
        float64[n] each. The slope per request is the median over the batch sizes of a draft
        length, weighted by how well each tells it; over all cells where fewer than 3 tell.
    """
    per_request = request_slopes(cells)
    return {(b, k): b * per_request(k) for b, k in cells}


def request_slopes(
    cells: Mapping[CellKey, tuple[ArrayLike, ArrayLike]],
) -> Callable[[int], float]:
    """Draft length → seconds per step, request and token of context; see `pooled_slopes`."""
    told: dict[int, list[tuple[float, float]]] = {}
    for (batch_size, length), (samples_s, context_tok) in cells.items():
        slope, weight = _fit(samples_s, context_tok)
        if weight > 0:
            told.setdefault(length, []).append((slope / batch_size, weight * batch_size))
    of_all = _weighted_median([one for of_length in told.values() for one in of_length])
    found = {k: _weighted_median(own) for k, own in told.items() if len(own) >= TELLING_BATCH_SIZES}
    return lambda length: max(found.get(length, of_all), 0.0)


def brought_to(
    cells: Mapping[CellKey, tuple[ArrayLike, ArrayLike]], reference_tok: float
) -> dict[CellKey, FloatArray]:
    """The samples of all cells as they would be at `reference_tok` tokens of context.

    cells: as for `pooled_slopes`.
    """
    slopes = pooled_slopes(cells)
    return {
        key: at_context(samples_s, context_tok, reference_tok, slopes[key])
        for key, (samples_s, context_tok) in cells.items()
    }


def _weighted_median(values: list[tuple[float, float]]) -> float:
    if not values:
        return 0.0
    ordered = sorted(values)
    summed: FloatArray = np.cumsum([weight for _, weight in ordered])
    return ordered[int(np.searchsorted(summed, 0.5 * float(summed[-1])))][0]


def _fit(samples_s: ArrayLike, context_tok: ArrayLike) -> tuple[float, float]:
    """The slope, and how well it is known: one over its standard error, in tokens per second.

    Both 0 where there are too few samples or too short a range.
    """
    samples = np.asarray(samples_s, dtype=np.float64)
    context = np.asarray(context_tok, dtype=np.float64)
    if samples.shape != context.shape or samples.ndim != 1:
        raise CoreError(
            "context_tok", f"one value for each of {samples.size} samples", context.size, "pass all"
        )
    if samples.size < _FEWEST or float(np.ptp(context)) < _SHORTEST_TOK:
        return 0.0, 0.0
    kept = np.ones(samples.shape, dtype=np.bool_)
    slope = spread = 0.0
    for _ in range(_ROUNDS):
        slope, offset = (float(c) for c in np.polyfit(context[kept], samples[kept], 1))
        residual = samples - offset - slope * context
        middle = float(np.median(residual))
        spread = 1.4826 * float(np.median(np.abs(residual - middle)))
        fitting = np.abs(residual - middle) <= max(_CLIP * spread, 1e-9)
        if np.array_equal(fitting, kept) or int(fitting.sum()) < _FEWEST:
            break
        kept = fitting
    reach = float(np.std(context[kept])) * float(np.sqrt(kept.sum()))
    # Of a clock of coarse ticks more than half of the residuals may be 0.
    return slope, reach / max(spread, _LEAST_SPREAD * float(np.median(samples)), 1e-9)


def at_context(
    samples_s: ArrayLike,
    context_tok: ArrayLike,
    reference_tok: float,
    slope: float | None = None,
) -> FloatArray:
    """The samples as they would be at `reference_tok` tokens of context, float64[n].

    slope: seconds per step and token; None: the samples' own.
    """
    samples = np.asarray(samples_s, dtype=np.float64)
    context = np.asarray(context_tok, dtype=np.float64)
    rise = slope_s_per_tok(samples, context) if slope is None else slope
    return samples + rise * (reference_tok - context)
