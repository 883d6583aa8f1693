"""What was drafted and what was accepted, per draft position."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tabletune.core.errors import CoreError
from tabletune.core.words import ArrayLike, FloatArray

_SLACK = 1e-9  # faded counts are floats: their order may suffer the last bits


@dataclass(frozen=True, eq=False)
class SurvivalCounts:
    """Counts of request-steps (one request in one engine step) per draft position.

    drafted_through: float64[K]; [i-1] = request-steps whose verified draft had at least i
        guesses.
    accepted_through: float64[K]; [i-1] = those of them whose guesses 1..i were all accepted.
    request_steps: decode request-steps that could have been drafted (the table's draft
        length was at least 1), those for which the drafter proposed nothing included.
    offered_through: float64[K]; [i-1] = request-steps in which the draft length in force was
        at least i. It is the denominator of the proposal rate when the draft length varies;
        without it every request-step counts as offered the full K.

    Drafts whose guesses a grammar made invalid are the caller's to leave out.
    Raises CoreError unless accepted <= drafted <= offered <= request_steps, all finite, none
    negative and none growing with the position.

    >>> counts = SurvivalCounts([10, 6], [7, 3], 12) + SurvivalCounts([10], [7], 12)
    >>> counts.drafted_through.tolist(), counts.request_steps
    ([20.0, 6.0], 24.0)
    """

    drafted_through: FloatArray
    accepted_through: FloatArray
    request_steps: float
    offered_through: FloatArray

    def __init__(
        self,
        drafted_through: ArrayLike,
        accepted_through: ArrayLike,
        request_steps: float,
        offered_through: ArrayLike | None = None,
    ) -> None:
        drafted = _column("drafted_through", drafted_through)
        steps = float(request_steps)
        if not np.isfinite(steps) or steps < 0:
            raise CoreError("request_steps", "a finite number >= 0", steps, "check the counter")
        offered = np.full(drafted.shape, steps) if offered_through is None else offered_through
        object.__setattr__(self, "drafted_through", drafted)
        object.__setattr__(self, "accepted_through", _column("accepted_through", accepted_through))
        object.__setattr__(self, "request_steps", steps)
        object.__setattr__(self, "offered_through", _column("offered_through", offered))
        self._check()

    def _check(self) -> None:
        ladder = (
            ("accepted_through", self.accepted_through, "drafted_through", self.drafted_through),
            ("drafted_through", self.drafted_through, "offered_through", self.offered_through),
        )
        for name, smaller, other, larger in ladder:
            if smaller.shape != larger.shape:
                raise CoreError(
                    name,
                    f"as many positions as {other} ({larger.size})",
                    smaller.size,
                    "count both over the same positions",
                )
            if np.any(smaller > larger * (1 + _SLACK)):
                raise CoreError(
                    name,
                    f"at most {other} {larger.tolist()}",
                    smaller.tolist(),
                    "count accepted, drafted and offered over the same request-steps",
                )
        if self.offered_through[0] > self.request_steps * (1 + _SLACK):
            raise CoreError(
                "request_steps",
                f"at least offered_through {self.offered_through[0]}",
                self.request_steps,
                "count request-steps without a proposal too",
            )

    @property
    def max_draft_length(self) -> int:
        """Positions counted: K."""
        return int(self.drafted_through.size)

    @classmethod
    def empty(cls, max_draft_length: int) -> SurvivalCounts:
        """No observations over `max_draft_length` positions."""
        return cls(np.zeros(max_draft_length), np.zeros(max_draft_length), 0.0)

    @classmethod
    def from_drafts(
        cls, drafts: Iterable[tuple[int, int, int]], max_draft_length: int
    ) -> SurvivalCounts:
        """Count (draft length in force, guesses drafted, guesses accepted) per request-step.

        Entries with a draft length of 0 are not counted: nothing could have been drafted.

        >>> counts = SurvivalCounts.from_drafts([(2, 2, 1), (2, 0, 0), (1, 1, 1)], 2)
        >>> counts.drafted_through.tolist(), counts.accepted_through.tolist()
        ([2.0, 1.0], [2.0, 0.0])
        >>> counts.offered_through.tolist(), counts.request_steps
        ([3.0, 2.0], 3.0)
        """
        offered, drafted, accepted = (np.zeros(max_draft_length) for _ in range(3))
        steps = 0
        for length, guesses, hits in drafts:
            if not 0 <= hits <= guesses <= length <= max_draft_length:
                raise CoreError(
                    "draft",
                    f"0 <= accepted <= drafted <= draft length <= {max_draft_length}",
                    (length, guesses, hits),
                    "pass (draft length, drafted, accepted)",
                )
            steps += length >= 1
            offered[:length] += 1
            drafted[:guesses] += 1
            accepted[:hits] += 1
        return cls(drafted, accepted, steps, offered)

    def faded(self, factor: float) -> SurvivalCounts:
        """All counts times `factor` (0..1): old observations weigh less.

        >>> SurvivalCounts([4], [2], 5).faded(0.5).accepted_through.tolist()
        [1.0]
        """
        if not 0.0 <= factor <= 1.0:
            raise CoreError("fading factor", "a number from 0 to 1", factor, "1 forgets nothing")
        return SurvivalCounts(
            self.drafted_through * factor,
            self.accepted_through * factor,
            self.request_steps * factor,
            self.offered_through * factor,
        )

    def __add__(self, other: SurvivalCounts) -> SurvivalCounts:
        """Pool two sets of counts; positions that one of them lacks count as never drafted."""
        size = max(self.max_draft_length, other.max_draft_length)

        def pooled(mine: FloatArray, theirs: FloatArray) -> FloatArray:
            return np.pad(mine, (0, size - mine.size)) + np.pad(theirs, (0, size - theirs.size))

        return SurvivalCounts(
            pooled(self.drafted_through, other.drafted_through),
            pooled(self.accepted_through, other.accepted_through),
            self.request_steps + other.request_steps,
            pooled(self.offered_through, other.offered_through),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SurvivalCounts):
            return NotImplemented
        return (
            self.request_steps == other.request_steps
            and np.array_equal(self.drafted_through, other.drafted_through)
            and np.array_equal(self.accepted_through, other.accepted_through)
            and np.array_equal(self.offered_through, other.offered_through)
        )

    __hash__ = None  # type: ignore[assignment]  # it holds arrays


def _column(name: str, values: ArrayLike) -> FloatArray:
    """A read-only float64[K], checked: one dimension, finite, >= 0, non-increasing."""
    column = np.array(values, dtype=np.float64)
    if column.ndim != 1 or column.size == 0:
        raise CoreError(name, "one number per position, K >= 1", column.shape, "pass a flat list")
    if not np.all(np.isfinite(column)) or np.any(column < 0):
        raise CoreError(name, "finite counts >= 0", column.tolist(), "check the counters")
    if np.any(column[1:] > column[:-1] * (1 + _SLACK)):
        raise CoreError(
            name,
            "counts that do not grow with the position",
            column.tolist(),
            "count request-steps that reached at least each position, not exactly it",
        )
    column.setflags(write=False)
    return column
