"""The capture plan: what an engine boots with so that a table's steps run as graphs."""

from typing import ClassVar, Literal

from pydantic import Field

from tabletune.records.base import Facts, Record

GraphMode = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]


class CapturePlan(Record):
    """Graph mode, capture sizes and the set of draft lengths an engine boots with.

    `capture_sizes` are token counts in rising order, empty for an engine without CUDA
    graphs. `lengths` holds each draft length the boot table names, in rising order.
    """

    KIND: ClassVar[str] = "capture_plan"

    graph_mode: GraphMode
    capture_sizes: tuple[int, ...]
    lengths: tuple[int, ...] = Field(min_length=1)
    max_draft_length: int = Field(ge=1)
    max_num_seqs: int = Field(ge=1)
    graph_count: int = Field(ge=0)
    notes: tuple[str, ...] = ()


class Envelope(Facts):
    """The (batch size, draft length) pairs that a table may use.

    `allowed` has one entry per draft length: the inclusive ranges of batch sizes that are
    covered by the capture plan and passed qualification.
    """

    allowed: dict[str, tuple[tuple[int, int], ...]]
    forbidden_transitions: tuple[tuple[int, int], ...] = ()

    def contains(self, batch_size: int, draft_length: int) -> bool:
        """Whether a table may use `draft_length` at `batch_size`."""
        ranges = self.allowed.get(str(draft_length), ())
        return any(first <= batch_size <= last for first, last in ranges)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The draft lengths that are allowed at some batch size, in rising order."""
        return tuple(sorted(int(k) for k, ranges in self.allowed.items() if ranges))
