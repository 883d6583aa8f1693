"""The best table in which some draft lengths must not be neighbours."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from tabletune.core.goodput_map import BoolArray
from tabletune.core.segments import Segment
from tabletune.core.words import FloatArray, IntArray


def forbidden_columns(lengths: Sequence[int], forbidden: Collection[tuple[int, int]]) -> BoolArray:
    """bool[L, L]: whether two columns must not be neighbours.

    Symmetric: as the batch grows and shrinks an edge is crossed both ways, so a forbidden
    2 -> 1 rules out both orders.
    """
    pairs = {frozenset(pair) for pair in forbidden}
    return np.array(
        [[a != b and frozenset((a, b)) in pairs for b in lengths] for a in lengths],
        dtype=np.bool_,
    ).reshape(len(lengths), len(lengths))


def breaks(segments: Sequence[Segment], forbidden: BoolArray) -> bool:
    """Whether any two neighbouring segments are forbidden."""
    return any(forbidden[a.column, b.column] for a, b in pairwise(segments))


def cheapest_segments(
    loss: FloatArray, forbidden: BoolArray, share: float, near_tie: float
) -> list[Segment] | None:
    """Segments over all batch sizes with the least cost; None if nothing is possible.

    loss: float64[B, L], infinite where not usable. Exact dynamic programme over the last
    batch size and column of a segment, O(B² L). The cost, in this order of weight: the number
    of segments narrower than `share` of their first batch size; then the summed loss, plus for
    each edge `near_tie` over the narrowest segment that may start there (an edge has to earn
    that much, as in the greedy rule).
    """
    size, columns = loss.shape
    finite = np.where(np.isfinite(loss), loss, 0.0)
    zeros = np.zeros((1, columns))
    summed = np.concatenate([zeros, np.cumsum(finite, axis=0)])
    unusable = np.concatenate([zeros, np.cumsum(~np.isfinite(loss), axis=0)])
    firsts = np.arange(1, size + 1, dtype=np.float64)
    edge_cost = near_tie * np.maximum(1.0, share * firsts)
    narrow_cost = 2.0 * size + edge_cost.sum()  # more than any sum of the rest

    # entry[f-1, j]: least cost of all before a segment of column j that starts at f.
    entry = np.full((size, columns), np.inf)
    entry[0] = 0.0
    came_from = np.zeros((size, columns), dtype=np.intp)
    best = np.full((size, columns), np.inf)
    start = np.zeros((size, columns), dtype=np.intp)
    blocked = np.where(forbidden | np.eye(columns, dtype=np.bool_), np.inf, 0.0)
    for last in range(size):
        cost = entry[: last + 1] + (summed[last + 1] - summed[: last + 1])
        narrow = last + 2 - firsts[: last + 1] < share * firsts[: last + 1]
        cost[narrow] += narrow_cost
        cost[unusable[last + 1] > unusable[: last + 1]] = np.inf
        start[last] = np.argmin(cost, axis=0)
        best[last] = np.min(cost, axis=0)
        if last + 1 < size:
            options = best[last][:, None] + blocked
            came_from[last + 1] = np.argmin(options, axis=0)
            entry[last + 1] = np.min(options, axis=0) + edge_cost[last + 1]
    return _walk_back(best, start, came_from)


def _walk_back(best: FloatArray, start: IntArray, came_from: IntArray) -> list[Segment] | None:
    last = best.shape[0] - 1
    column = int(np.argmin(best[last]))
    if not np.isfinite(best[last, column]):
        return None
    segments: list[Segment] = []
    while last >= 0:
        first = int(start[last, column])
        segments.append(Segment(first + 1, last + 1, column))
        column = int(came_from[first, column])
        last = first - 1
    return segments[::-1]
