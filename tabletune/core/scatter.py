"""Noise between the cells of a profile, which no cell's own interval shows, and its cure.

A cell's interval comes from steps that followed one another. On a machine that others use too,
cells that were measured minutes apart differ by more. That shows where a larger batch seems to be
faster than a smaller one at the same draft length: it does the same work and more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tabletune.core.isotonic import non_increasing
from tabletune.core.step_time import StepTimeEstimate
from tabletune.core.words import Cell, FloatArray

#: Below this share nothing is smoothed: kernels do make some larger batches a little faster. The
#: recorded profile of one H200, 105 cells, has a scatter of 0.9 %.
NEGLIGIBLE = 0.02
_WIDE = 1.96  # halfwidths are those of 95 % intervals


def smooth_cells(
    cells: Mapping[Cell, StepTimeEstimate],
) -> tuple[dict[Cell, StepTimeEstimate], float]:
    """The cells without their scatter as far as it is seen, and the scatter (see `scatter`).

    For each draft length the step times become the nearest ones that do not fall with the batch
    size, and the scatter is added to every interval. Where it is negligible the cells come back
    as they are, with a scatter of 0. Cells that run without a graph among others that have one
    do not belong here: they are rightly slower than larger ones.
    """
    rows: dict[int, list[int]] = {}
    for batch_size, length in sorted(cells):
        rows.setdefault(length, []).append(batch_size)
    noise = scatter([cells[b, k].step_time_s for b in row] for k, row in rows.items())
    if noise < NEGLIGIBLE:
        return dict(cells), 0.0
    smooth: dict[Cell, StepTimeEstimate] = {}
    for length, row in rows.items():
        found = [cells[b, length] for b in row]
        widths = np.array([one.relative_halfwidth for one in found])
        times_s = non_decreasing(np.array([one.step_time_s for one in found]), widths, noise)
        for b, one, time_s, width in zip(row, found, times_s.tolist(), widths, strict=True):
            half_s = time_s * math.hypot(float(width), noise)
            smooth[b, length] = replace(
                one, step_time_s=time_s, low_s=time_s - half_s, high_s=time_s + half_s
            )
    return smooth, noise


def scatter(rows: Iterable[Sequence[float]]) -> float:
    """Half the 95 % interval of a cell's noise beside its own, as a share of the step time.

    rows: step times in seconds at ascending batch sizes, one row for each draft length.

    If step times did not grow at all, half of the neighbours would be in the wrong order by
    chance, and the mean square of what they are apart would be the variance of one cell. Where
    they grow this finds less: it never claims noise that is not seen. 0 without neighbours.

    >>> scatter([[0.010, 0.012, 0.015]])
    0.0
    >>> round(scatter([[0.050, 0.060, 0.046, 0.047]]), 3)
    0.301
    """
    wrong: list[float] = []
    for row in rows:
        steps = np.diff(np.log(np.asarray(row, dtype=np.float64)))
        wrong += np.minimum(steps, 0.0).tolist()
    return _WIDE * math.sqrt(float(np.mean(np.square(wrong)))) if wrong else 0.0


def non_decreasing(
    times_s: FloatArray, relative_halfwidths: FloatArray, noise: float
) -> FloatArray:
    """The nearest step times that do not fall with the batch size; float64[n], seconds.

    Nearest by ratio. relative_halfwidths: of the cells' own intervals; with `noise`, which is
    not 0, they give the weights.
    """
    weights = 1.0 / (np.square(relative_halfwidths) + noise**2)
    return np.exp(-non_increasing(-np.log(times_s), weights))
