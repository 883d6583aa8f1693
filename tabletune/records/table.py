"""A draft-length table, and the version of it that gets promoted."""

import itertools
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from tabletune.records.base import (
    HASH_OR_EMPTY_PATTERN,
    MAX_BATCH_SIZE,
    MAX_DRAFT_LENGTH,
    Facts,
    Record,
)
from tabletune.records.plan import CapturePlan, Envelope


class Range(Facts):
    """Batch sizes `first` … `last` (inclusive) use `draft_length`.

    `predicted_goodput_tok_s` is the mean over the range, None in a table that was written
    by hand.
    """

    first: int = Field(ge=1)
    last: int = Field(ge=1)
    draft_length: int = Field(ge=0)
    predicted_goodput_tok_s: float | None = Field(default=None, ge=0)


class Table(Record):
    """A dense table: ranges from 1 to `max_num_seqs` without gap or overlap.

    `max_draft_length` is the engine's configured maximum; no range exceeds it.
    """

    KIND: ClassVar[str] = "table"

    max_num_seqs: int = Field(ge=1, le=MAX_BATCH_SIZE)
    max_draft_length: int = Field(ge=1, le=MAX_DRAFT_LENGTH)
    ranges: tuple[Range, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _dense(self) -> "Table":
        expected = 1
        for part in self.ranges:
            if part.first != expected:
                raise ValueError(
                    f"a range starts at {part.first}, expected {expected}: tables have neither "
                    "gap nor overlap"
                )
            if part.last < part.first:
                raise ValueError(f"range {part.first}–{part.last} is empty")
            if part.draft_length > self.max_draft_length:
                raise ValueError(
                    f"range {part.first}–{part.last} has draft length {part.draft_length}, above "
                    f"the maximum {self.max_draft_length}"
                )
            expected = part.last + 1
        if expected != self.max_num_seqs + 1:
            raise ValueError(f"the ranges end at {expected - 1}, not at {self.max_num_seqs}")
        return self

    def draft_length(self, batch_size: int) -> int:
        """The draft length at `batch_size`.

        Raises:
            ValueError: `batch_size` is outside 1 … max_num_seqs.
        """
        for part in self.ranges:
            if part.first <= batch_size <= part.last:
                return part.draft_length
        raise ValueError(f"batch size {batch_size} is outside 1 … {self.max_num_seqs}")

    def dense(self) -> list[int]:
        """Draft length by batch size; index 0 is unused and 0, as in vLLM's lookup."""
        lookup = [0]
        for part in self.ranges:
            lookup += [part.draft_length] * (part.last - part.first + 1)
        return lookup

    @property
    def lengths(self) -> tuple[int, ...]:
        """The draft lengths in use, in rising order."""
        return tuple(sorted({part.draft_length for part in self.ranges}))


def table_from_dense(lookup: list[int], max_draft_length: int) -> Table:
    """The table of a dense lookup whose index 0 is unused.

    Raises:
        ValueError: fewer than two entries, or a length out of range.
    """
    if len(lookup) < 2:
        raise ValueError(f"expected a lookup for batch sizes 1 and up, found {lookup!r}")
    ranges: list[Range] = []
    for batch_size in range(1, len(lookup)):
        if ranges and ranges[-1].draft_length == lookup[batch_size]:
            ranges[-1] = ranges[-1].model_copy(update={"last": batch_size})
        else:
            ranges.append(Range(first=batch_size, last=batch_size, draft_length=lookup[batch_size]))
    return Table(
        max_num_seqs=len(lookup) - 1, max_draft_length=max_draft_length, ranges=tuple(ranges)
    )


class Parents(Facts):
    """The content hashes of what a table version came from; empty where there is none."""

    profile: str = Field(default="", pattern=HASH_OR_EMPTY_PATTERN)
    acceptance_prior: str = Field(default="", pattern=HASH_OR_EMPTY_PATTERN)
    qualification: str = Field(default="", pattern=HASH_OR_EMPTY_PATTERN)
    previous_version: str = Field(default="", pattern=HASH_OR_EMPTY_PATTERN)


class TableVersion(Record):
    """An immutable, content-addressed version: table, plan, envelope, fingerprint, parents.

    A table is only valid with its capture plan, so both are one thing here. The predicted
    objective says what the table maximises.
    """

    KIND: ClassVar[str] = "table_version"

    table: Table
    plan: CapturePlan
    envelope: Envelope
    fingerprint: str
    parents: Parents
    objective: Literal["throughput", "throughput_under_tpot_limit"] = "throughput"
    max_tpot_s: float | None = Field(default=None, gt=0)
    created_at: str
    created_by: str = "tabletune"

    @model_validator(mode="after")
    def _inside_envelope(self) -> "TableVersion":
        if self.table.max_num_seqs != self.plan.max_num_seqs:
            raise ValueError(
                f"the table covers {self.table.max_num_seqs} requests, its plan "
                f"{self.plan.max_num_seqs}"
            )
        if self.table.max_draft_length != self.plan.max_draft_length:
            raise ValueError(
                f"the table's maximum draft length is {self.table.max_draft_length}, its plan's "
                f"{self.plan.max_draft_length}"
            )
        missing = set(self.table.lengths) - set(self.plan.lengths)
        if missing:
            raise ValueError(f"lengths {sorted(missing)} are not in the capture plan")
        for batch_size, length in enumerate(self.table.dense()):
            if batch_size and not self.envelope.contains(batch_size, length):
                raise ValueError(
                    f"batch size {batch_size} with draft length {length} leaves the envelope"
                )
        forbidden = set(self.envelope.forbidden_transitions)
        lengths = [part.draft_length for part in self.table.ranges]
        for left, right in itertools.pairwise(lengths):
            if (left, right) in forbidden or (right, left) in forbidden:
                raise ValueError(f"the transition between {left} and {right} is forbidden")
        return self

    @model_validator(mode="after")
    def _objective_is_complete(self) -> "TableVersion":
        if (self.objective == "throughput_under_tpot_limit") != (self.max_tpot_s is not None):
            raise ValueError(
                f"objective {self.objective!r} with max_tpot_s {self.max_tpot_s!r}: the limit "
                "belongs to throughput_under_tpot_limit, which needs it"
            )
        return self
