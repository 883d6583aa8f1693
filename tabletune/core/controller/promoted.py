"""What was promoted: the table in force by default, and the evidence it came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tabletune.core.counts import SurvivalCounts
from tabletune.core.errors import CoreError
from tabletune.core.surface import StepTimes


@dataclass(frozen=True, eq=False)
class Promoted:
    """A table version as the controller needs it.

    lengths: draft length per batch size, [b-1] for b = 1..max_num_seqs. usable: the lengths
    that any table may use. surface: profiled step times. prior: survival counts of the
    acceptance prior, scaled down to the settings' prior weight. envelope: (batch size, draft
    length) -> whether a table may use it. forbidden_transitions: pairs of lengths that must
    not follow each other, in either order. version: the id, for people. max_tpot_s: limit on
    the mean time per output token; None: throughput alone.
    """

    lengths: tuple[int, ...]
    usable: tuple[int, ...]
    surface: StepTimes
    prior: SurvivalCounts
    envelope: Callable[[int, int], bool]
    max_num_seqs: int
    max_draft_length: int
    forbidden_transitions: tuple[tuple[int, int], ...] = ()
    version: str = ""
    max_tpot_s: float | None = None

    def __post_init__(self) -> None:
        if len(self.lengths) != self.max_num_seqs:
            raise CoreError(
                "promoted lengths",
                f"one per batch size up to max_num_seqs {self.max_num_seqs}",
                len(self.lengths),
                "expand the table's ranges",
            )
        outside = [b for b, k in enumerate(self.lengths, 1) if not self.envelope(b, k)]
        if outside:
            raise CoreError(
                "promoted lengths",
                "every length inside the envelope",
                [(b, self.lengths[b - 1]) for b in outside[:5]],
                "promote a table of this envelope",
            )
        if not self.usable or min(self.usable) < 0 or max(self.usable) > self.max_draft_length:
            raise CoreError(
                "usable lengths", f"0 to {self.max_draft_length}", self.usable, "see the envelope"
            )

    def prior_counts(self) -> SurvivalCounts:
        """The prior over exactly `max_draft_length` positions."""
        size, prior = self.max_draft_length, self.prior
        if prior.max_draft_length <= size:
            return prior + SurvivalCounts.empty(size)
        return SurvivalCounts(
            prior.drafted_through[:size],
            prior.accepted_through[:size],
            prior.request_steps,
            prior.offered_through[:size],
        )

    @property
    def objective(self) -> str:
        """In words, as in the table version."""
        return "throughput" if self.max_tpot_s is None else "throughput_under_tpot_limit"
