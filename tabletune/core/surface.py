"""Step time for every batch size and draft length, from the cells that were measured."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tabletune.core.errors import CoreError, NotCoveredError
from tabletune.core.step_time import StepTimeEstimate
from tabletune.core.words import Cell, FloatArray

PaddedTokens = Callable[[int, int], int | None]
"""(batch size, draft length) -> tokens that the step's CUDA graph is padded to; None: no graph."""

_FINE_STAIR = 1 / 8  # a stair no taller than this share of its padded tokens is as good as a line
_PER_OCTAVE = 0.02  # uncertainty gained per doubling of the batch size away from a measurement


class StepTimes(Protocol):
    """What the table builder needs to know about step times."""

    @property
    def draft_lengths(self) -> tuple[int, ...]: ...
    def covered(self, batch_size: int, draft_length: int) -> bool: ...
    def step_time_s(self, batch_size: int, draft_length: int) -> float: ...


@runtime_checkable
class DenseStepTimes(StepTimes, Protocol):
    """Step times that are there as an array: a table is built from them in a tenth of the time."""

    def dense_step_time_s(self) -> FloatArray:
        """float64[B, L], [b-1, j] for batch size b and draft_lengths[j]; NaN where not covered."""
        ...


@dataclass(frozen=True)
class _Point:
    batch_size: int
    tokens: int  # padded, or without graphs as scheduled: the coordinate of the staircase
    time_s: float
    relative_halfwidth: float
    fine: bool  # no tall stair between the next smaller measured batch size and this one


@dataclass(frozen=True)
class StepTimeSurface:
    """Measured step times, and careful interpolation between them. Build it with `from_cells`.

    On an engine with CUDA graphs the step time is a staircase in padded tokens, so for one
    draft length, between two neighbouring measured batch sizes:
    - a batch size padded like both of them lies on the line between them;
    - one padded like the lower (upper) of them takes that one's time: the jump sits at the
      graph's boundary, where it belongs;
    - one on a stair that was not measured takes the worse of both times, or, where the stairs
      are fine, the line between them in padded tokens.
    Without graphs (`padded_tokens` None) it is the line in the batch size. The result always
    lies between the two neighbours. Below the smallest measured batch size its time is taken;
    above the largest nothing is covered.
    """

    _points: Mapping[int, tuple[_Point, ...]]
    _padded_tokens: PaddedTokens | None

    @classmethod
    def from_cells(
        cls, cells: Mapping[Cell, StepTimeEstimate], padded_tokens: PaddedTokens | None = None
    ) -> StepTimeSurface:
        """From estimates by (batch size, draft length) that `plausibility` found usable.

        Cells without a graph are left out: what runs with a graph cannot be inferred from
        them. Raises CoreError for a step time that is not positive and finite, or for an
        impossible batch size or draft length.

        >>> cells = {(b, 0): StepTimeEstimate(t, t, t, 80, 0) for b, t in [(1, 4e-3), (8, 6e-3)]}
        >>> line = StepTimeSurface.from_cells(cells)
        >>> round(line.step_time_s(4, 0), 6), line.covered(9, 0)
        (0.004857, False)
        >>> stairs = StepTimeSurface.from_cells(cells, lambda b, k: 4 if b <= 4 else 8)
        >>> [stairs.step_time_s(b, 0) for b in (4, 5)]
        [0.004, 0.006]
        """
        points: dict[int, list[_Point]] = {}
        for (b, k), estimate in sorted(cells.items()):
            _check_cell(b, k, estimate)
            tokens = padded_tokens(b, k) if padded_tokens else b * (k + 1)
            if tokens is None:
                continue
            row = points.setdefault(k, [])
            fine = not (row and padded_tokens) or _is_fine(padded_tokens, row[-1].batch_size, b, k)
            row.append(_Point(b, tokens, estimate.step_time_s, estimate.relative_halfwidth, fine))
        return cls({k: tuple(row) for k, row in points.items()}, padded_tokens)

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """Draft lengths with at least one usable cell, ascending."""
        return tuple(sorted(self._points))

    def measured(self, draft_length: int) -> tuple[int, ...]:
        """The measured batch sizes of one draft length, ascending; () if there are none."""
        return tuple(point.batch_size for point in self._points.get(draft_length, ()))

    def covered(self, batch_size: int, draft_length: int) -> bool:
        """Whether the cell has a graph (where graphs count) and lies within what was measured."""
        return self._why_not(batch_size, draft_length) is None

    def step_time_s(self, batch_size: int, draft_length: int) -> float:
        """Seconds per step. Raises NotCoveredError where `covered` is False."""
        return self._interpolated(batch_size, draft_length)[0]

    def relative_uncertainty(self, batch_size: int, draft_length: int) -> float:
        """Half-width of the step time's uncertainty as a share of it.

        At a measured cell that of its interval. Elsewhere more, with the distance from the
        measurements, and with what the time could do between them unseen. NotCoveredError
        as `step_time_s`.
        """
        return self._interpolated(batch_size, draft_length)[1]

    def _why_not(self, b: int, k: int) -> str | None:
        row = self._points.get(k)
        if not row:
            return "no usable measurement of this draft length"
        if b < 1:
            return "a batch has at least one request"
        if b > row[-1].batch_size:
            return f"the largest batch size measured at this draft length is {row[-1].batch_size}"
        if self._padded_tokens and self._padded_tokens(b, k) is None:
            return "no CUDA graph is captured for it"
        return None

    def _interpolated(self, b: int, k: int) -> tuple[float, float]:
        reason = self._why_not(b, k)
        if reason:
            raise NotCoveredError(b, k, reason)
        row = self._points[k]
        index = bisect_left(row, b, key=lambda point: point.batch_size)
        right = row[index]
        if right.batch_size == b:
            return right.time_s, right.relative_halfwidth
        if index == 0:
            # A smaller batch is not slower: the smallest measured one bounds it from above.
            return right.time_s, right.relative_halfwidth + _drift(b, right.batch_size)
        left = row[index - 1]
        tokens = self._padded_tokens(b, k) if self._padded_tokens else b * (k + 1)
        if tokens is None:
            raise NotCoveredError(b, k, "no CUDA graph is captured for it")
        if left.tokens == right.tokens == tokens:
            return _on_line(left, right, b, _share(left.batch_size, b, right.batch_size))
        for side in (left, right):
            if tokens == side.tokens:
                return side.time_s, side.relative_halfwidth + _drift(b, side.batch_size)
        if right.fine and left.tokens != right.tokens:
            return _on_line(left, right, b, _share(left.tokens, tokens, right.tokens))
        return _worse(left, right, b)


def _check_cell(b: int, k: int, estimate: StepTimeEstimate) -> None:
    if b < 1 or k < 0:
        raise CoreError("cell", "(batch size >= 1, draft length >= 0)", (b, k), "check the order")
    if not (math.isfinite(estimate.step_time_s) and estimate.step_time_s > 0):
        raise CoreError(
            f"step time of {(b, k)}",
            "a positive finite number",
            estimate.step_time_s,
            "measure the cell again; `plausibility` names such cells",
        )


def _is_fine(padded_tokens: PaddedTokens, left: int, right: int, k: int) -> bool:
    """Whether no stair between two batch sizes is taller than a fine one."""
    before = padded_tokens(left, k)
    for b in range(left + 1, right + 1):
        padded = padded_tokens(b, k)
        if padded is None or before is None:
            continue
        if padded - before > max(k + 1, _FINE_STAIR * padded):
            return False
        before = padded
    return True


def _worse(left: _Point, right: _Point, b: int) -> tuple[float, float]:
    worse, better = (left, right) if left.time_s > right.time_s else (right, left)
    unseen = 1 - better.time_s / worse.time_s
    return worse.time_s, worse.relative_halfwidth + unseen + _drift(b, worse.batch_size)


def _share(low: float, value: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _drift(b: int, measured: int) -> float:
    return _PER_OCTAVE * abs(math.log2(b / measured))


def _on_line(left: _Point, right: _Point, b: int, share: float) -> tuple[float, float]:
    time_s = left.time_s + share * (right.time_s - left.time_s)
    # A step somewhere between the two would move the time by up to the nearer end's distance.
    unseen = abs(right.time_s - left.time_s) * min(share, 1 - share) / time_s
    drift = min(_drift(b, left.batch_size), _drift(b, right.batch_size))
    return time_s, max(left.relative_halfwidth, right.relative_halfwidth) + unseen + drift
