"""The paper's table rules on a goodput map: argmax, near ties, narrow ranges.

A path gives a column of the map for every batch size; segments are its runs.
Source: arXiv 2610.38968 (near ties suppressed; ranges narrower than 25 % of their first batch
size merged).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np

from tabletune.core.words import FloatArray


@dataclass(frozen=True)
class Segment:
    """Batch sizes first..last (both included) use column `column` of the map."""

    first: int
    last: int
    column: int

    def narrow(self, share: float) -> bool:
        """Whether it spans fewer batch sizes than `share` of its first one."""
        return self.last - self.first + 1 < share * self.first


@dataclass(frozen=True)
class Absorption:
    """A narrow segment that a neighbour's column replaced, and the largest loss there."""

    segment: Segment
    column: int
    worst_loss: float


def follow_argmax(loss: FloatArray, near_tie: float | FloatArray) -> list[int]:
    """A column per batch size: the best one, but the last one is kept while it is near it.

    loss: float64[B, L] against the best usable column, infinite where not usable. The column
    in use is left only where it loses more than `near_tie` (one share, or float64[B]), so the
    path loses at most that.

    >>> follow_argmax(np.array([[0.0, 0.3], [0.005, 0.0], [0.02, 0.0], [0.0, 0.001]]), 0.01)
    [0, 0, 1, 1]
    """
    path: list[int] = []
    ties: FloatArray = np.broadcast_to(np.asarray(near_tie, dtype=np.float64), len(loss))
    for row, tie in zip(loss, ties, strict=True):
        keep = bool(path) and bool(row[path[-1]] <= tie)
        path.append(path[-1] if keep else int(np.argmin(row)))
    return path


def to_segments(path: Sequence[int]) -> list[Segment]:
    """The runs of a path; path[0] belongs to batch size 1.

    >>> to_segments([2, 2, 0])
    [Segment(first=1, last=2, column=2), Segment(first=3, last=3, column=0)]
    """
    segments: list[Segment] = []
    first = 1
    for column, run in groupby(path):
        last = first + len(list(run)) - 1
        segments.append(Segment(first, last, column))
        first = last + 1
    return segments


def to_path(segments: Sequence[Segment]) -> list[int]:
    """The inverse of `to_segments`."""
    return [s.column for s in segments for _ in range(s.first, s.last + 1)]


def absorb_narrow(
    segments: Sequence[Segment],
    loss: FloatArray,
    share: float,
    max_loss: float | None = None,
) -> tuple[list[Segment], list[Absorption], list[Segment]]:
    """Merge narrow segments into the neighbour that loses less there, from small b upwards.

    Returns the segments left, what was absorbed, and the narrow ones kept because no
    neighbour's column is usable over the whole of them or it would lose more than `max_loss`.
    """
    path = to_path(segments)
    absorbed: list[Absorption] = []
    kept: list[Segment] = []
    while True:
        current = to_segments(path)
        index = next((i for i, s in enumerate(current) if s.narrow(share) and s not in kept), None)
        if index is None or len(current) == 1:
            return current, absorbed, kept
        segment = current[index]
        neighbours = current[max(index - 1, 0) : index] + current[index + 1 : index + 2]
        rows = loss[segment.first - 1 : segment.last]
        column = min((s.column for s in neighbours), key=partial(_summed, rows))
        worst = float(rows[:, column].max())
        if not np.isfinite(worst) or (max_loss is not None and worst > max_loss):
            kept.append(segment)
            continue
        path[segment.first - 1 : segment.last] = [column] * len(rows)
        absorbed.append(Absorption(segment, column, worst))


def _summed(rows: FloatArray, column: int) -> float:
    return float(rows[:, column].sum())
