"""Which cells of a profile must be measured again, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tabletune.core.step_time import StepTimeEstimate
from tabletune.core.words import Cell


@dataclass(frozen=True)
class PlausibilityLimits:
    """max_relative_halfwidth: widest usable interval, +- this share of the step time.
    min_samples: fewest steps a cell may rest on.
    tolerance: how far a larger batch or a longer draft may seem faster than a smaller or
    shorter one, as a share, on top of both intervals.
    """

    max_relative_halfwidth: float = 0.05
    min_samples: int = 3
    tolerance: float = 0.10


_DEFAULT_LIMITS = PlausibilityLimits()


def plausibility(
    cells: Mapping[Cell, StepTimeEstimate],
    limits: PlausibilityLimits = _DEFAULT_LIMITS,
    comparable: Callable[[int, int], bool] | None = None,
) -> dict[Cell, str]:
    """The problem cells, each with its reason in words. Those are measured again, never used.

    Judged: a step time that is not a positive finite number, too few samples, an interval too
    wide, and a step time far below that of a smaller batch at the same draft length or of a
    shorter draft at the same batch size. Of two cells that contradict each other the one with
    more contradictions is named; if they have equally many, both are.
    comparable(b, K): False keeps a cell out of comparisons with others, as for cells that run
    without a CUDA graph and are rightly slower than larger ones with a graph.

    >>> cells = {(b, 0): StepTimeEstimate(t, t, t, 80, 0) for b, t in
    ...          [(1, 0.0040), (2, 0.0041), (4, 0.0020), (8, 0.0043)]}
    >>> plausibility(cells)
    {(4, 0): '2.000 ms, far below the 4.100 ms of batch size 2 at the same draft length'}
    """
    problems = {
        cell: reason
        for cell, estimate in cells.items()
        if (reason := _alone(estimate, limits)) is not None
    }
    sound = {
        cell: estimate
        for cell, estimate in cells.items()
        if cell not in problems and (comparable is None or comparable(*cell))
    }
    problems.update(_contradictions(sound, limits.tolerance))
    return {cell: problems[cell] for cell in sorted(problems)}


def _alone(estimate: StepTimeEstimate, limits: PlausibilityLimits) -> str | None:
    time = estimate.step_time_s
    if not math.isfinite(time) or time <= 0:
        return f"step time {time!r} s is not a positive finite number"
    if estimate.sample_count < limits.min_samples:
        return f"{estimate.sample_count} samples, at least {limits.min_samples} are needed"
    width = estimate.relative_halfwidth
    if not width <= limits.max_relative_halfwidth:
        return (
            f"interval of ±{width:.1%} around {_ms(time)}, "
            f"at most ±{limits.max_relative_halfwidth:.1%} is usable"
        )
    return None


def _contradictions(cells: Mapping[Cell, StepTimeEstimate], tolerance: float) -> dict[Cell, str]:
    """Remove the most contradicted cells until no two of the rest contradict each other."""
    against: dict[Cell, set[Cell]] = {cell: set() for cell in cells}
    for (b, k), larger in cells.items():
        for (b2, k2), smaller in cells.items():
            ordered = (k == k2 and b2 < b) or (b == b2 and k2 < k)
            if ordered and larger.high_s < smaller.low_s * (1 - tolerance):
                against[b, k].add((b2, k2))
                against[b2, k2].add((b, k))
    named: dict[Cell, str] = {}
    while (most := max((len(others) for others in against.values()), default=0)) > 0:
        worst = [cell for cell, others in against.items() if len(others) == most]
        for cell in worst:
            other = max(against[cell], key=lambda o: abs(math.log(_ratio(cells, cell, o))))
            named[cell] = _contradiction(cells, cell, other)
        for cell in worst:
            for other in against.pop(cell):
                if other in against:
                    against[other].discard(cell)
    return named


def _ratio(cells: Mapping[Cell, StepTimeEstimate], cell: Cell, other: Cell) -> float:
    return cells[cell].step_time_s / cells[other].step_time_s


def _contradiction(cells: Mapping[Cell, StepTimeEstimate], cell: Cell, other: Cell) -> str:
    side = "below" if _ratio(cells, cell, other) < 1 else "above"
    if cell[1] == other[1]:
        where = f"batch size {other[0]} at the same draft length"
    else:
        where = f"draft length {other[1]} at the same batch size"
    time, others = cells[cell].step_time_s, cells[other].step_time_s
    return f"{_ms(time)}, far {side} the {_ms(others)} of {where}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"
