"""What was promoted, as a decision log keeps it: everything that the controller reads of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, model_validator

from tabletune.core.controller.promoted import Promoted
from tabletune.core.counts import SurvivalCounts
from tabletune.core.errors import NotCoveredError
from tabletune.records.base import MAX_BATCH_SIZE, MAX_DRAFT_LENGTH, Facts
from tabletune.records.plan import Envelope, LengthKey

Share = Annotated[float, Field(ge=0)]


class PriorFacts(Facts):
    """Survival counts, faded ones too; see core/counts.py."""

    drafted_through: tuple[Share, ...] = Field(min_length=1)
    accepted_through: tuple[Share, ...]
    offered_through: tuple[Share, ...]
    request_steps: float = Field(ge=0)


class PromotedFacts(Facts):
    """A `Promoted` in plain values, exact: floats are written so that they read back equal.

    `step_times_s` has one list per draft length, [b-1] for batch size b, null where the cell is
    not covered. `envelope` is that of the lengths in `step_times_s`.
    """

    version: str
    lengths: tuple[Annotated[int, Field(ge=0, le=MAX_DRAFT_LENGTH)], ...]
    usable: tuple[Annotated[int, Field(ge=0, le=MAX_DRAFT_LENGTH)], ...] = Field(min_length=1)
    step_times_s: dict[LengthKey, tuple[Annotated[float, Field(gt=0)] | None, ...]]
    prior: PriorFacts
    envelope: Envelope
    max_num_seqs: int = Field(ge=1, le=MAX_BATCH_SIZE)
    max_draft_length: int = Field(ge=1, le=MAX_DRAFT_LENGTH)
    forbidden_transitions: tuple[tuple[int, int], ...]
    max_tpot_s: float | None = Field(gt=0)

    @model_validator(mode="after")
    def _fits(self) -> "PromotedFacts":
        rows = [len(self.lengths), *(len(times) for times in self.step_times_s.values())]
        if set(rows) != {self.max_num_seqs}:
            raise ValueError(f"rows of {sorted(set(rows))} batch sizes, not {self.max_num_seqs}")
        self.promoted()  # the core checks the rest
        return self

    @classmethod
    def of(cls, promoted: Promoted) -> "PromotedFacts":
        """Read everything that a controller may ask of `promoted`."""
        sizes = range(1, promoted.max_num_seqs + 1)
        lengths = sorted({*promoted.usable, *promoted.lengths})
        surface, prior = promoted.surface, promoted.prior
        return cls(
            version=promoted.version,
            lengths=promoted.lengths,
            usable=promoted.usable,
            step_times_s={
                str(k): tuple(
                    surface.step_time_s(b, k) if surface.covered(b, k) else None for b in sizes
                )
                for k in lengths
            },
            prior=PriorFacts(
                drafted_through=tuple(prior.drafted_through.tolist()),
                accepted_through=tuple(prior.accepted_through.tolist()),
                offered_through=tuple(prior.offered_through.tolist()),
                request_steps=prior.request_steps,
            ),
            envelope=Envelope(
                allowed={str(k): _ranges([promoted.envelope(b, k) for b in sizes]) for k in lengths}
            ),
            max_num_seqs=promoted.max_num_seqs,
            max_draft_length=promoted.max_draft_length,
            forbidden_transitions=promoted.forbidden_transitions,
            max_tpot_s=promoted.max_tpot_s,
        )

    def promoted(self) -> Promoted:
        """The core's object; a controller cannot tell it from the one that was read."""
        prior = self.prior
        return Promoted(
            lengths=self.lengths,
            usable=self.usable,
            surface=RecordedStepTimes({int(k): row for k, row in self.step_times_s.items()}),
            prior=SurvivalCounts(
                prior.drafted_through,
                prior.accepted_through,
                prior.request_steps,
                prior.offered_through,
            ),
            envelope=self.envelope.contains,
            max_num_seqs=self.max_num_seqs,
            max_draft_length=self.max_draft_length,
            forbidden_transitions=self.forbidden_transitions,
            version=self.version,
            max_tpot_s=self.max_tpot_s,
        )


@dataclass(frozen=True)
class RecordedStepTimes:
    """Step times by draft length and batch size as they were recorded; see `StepTimes`."""

    rows: Mapping[int, tuple[float | None, ...]]

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """The draft lengths with at least one covered cell, ascending."""
        return tuple(sorted(k for k, row in self.rows.items() if any(row)))

    def covered(self, batch_size: int, draft_length: int) -> bool:
        """Whether the cell was covered."""
        row = self.rows.get(draft_length, ())
        return 1 <= batch_size <= len(row) and row[batch_size - 1] is not None

    def step_time_s(self, batch_size: int, draft_length: int) -> float:
        """Seconds per step. Raises NotCoveredError where `covered` is False."""
        if self.covered(batch_size, draft_length):
            seconds = self.rows[draft_length][batch_size - 1]
            if seconds is not None:
                return seconds
        raise NotCoveredError(batch_size, draft_length, "the decision log has no step time")


def _ranges(flags: list[bool]) -> tuple[tuple[int, int], ...]:
    """The inclusive ranges of batch sizes, [b-1], where a flag is set."""
    ranges: list[tuple[int, int]] = []
    for batch_size, flag in enumerate(flags, start=1):
        if flag and ranges and ranges[-1][1] == batch_size - 1:
            ranges[-1] = (ranges[-1][0], batch_size)
        elif flag:
            ranges.append((batch_size, batch_size))
    return tuple(ranges)
