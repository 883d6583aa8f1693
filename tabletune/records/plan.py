"""The capture plan: what an engine boots with so that a table's steps run as graphs."""

import itertools
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from tabletune.records.base import MAX_BATCH_SIZE, MAX_DRAFT_LENGTH, Facts, Record

#: A draft length as a key of a JSON object.
LengthKey = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,3})$")]
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
    max_draft_length: int = Field(ge=1, le=MAX_DRAFT_LENGTH)
    max_num_seqs: int = Field(ge=1, le=MAX_BATCH_SIZE)
    graph_count: int = Field(ge=0)
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _rising(self) -> "CapturePlan":
        _check_rising("capture_sizes", self.capture_sizes, least=1)
        _check_rising("lengths", self.lengths, least=0)
        if self.lengths[-1] > self.max_draft_length:
            raise ValueError(
                f"length {self.lengths[-1]} exceeds max_draft_length {self.max_draft_length}"
            )
        if self.graph_mode == "NONE" and (self.capture_sizes or self.graph_count):
            raise ValueError("graph_mode NONE captures nothing, but the plan names graphs")
        return self

    @property
    def joining_sizes(self) -> tuple[int, ...]:
        """The sizes above the widest decode step, for steps in which prompts join; rising."""
        if "PIECEWISE" not in self.graph_mode:
            return ()
        widest = self.max_num_seqs * (self.max_draft_length + 1)
        return tuple(size for size in self.capture_sizes if size > widest)


def _check_rising(name: str, values: tuple[int, ...], least: int) -> None:
    rising = all(left < right for left, right in itertools.pairwise(values))
    if not rising or (values and values[0] < least):
        raise ValueError(f"{name} {values} must rise, from {least} or more")


class Envelope(Facts):
    """The (batch size, draft length) pairs that a table may use.

    `allowed` has one entry per draft length: the inclusive ranges of batch sizes that are
    covered by the capture plan and passed qualification.
    """

    allowed: dict[LengthKey, tuple[tuple[int, int], ...]]
    forbidden_transitions: tuple[tuple[int, int], ...] = ()

    @model_validator(mode="after")
    def _ranges_are_ranges(self) -> "Envelope":
        for length, ranges in self.allowed.items():
            before = 0
            for first, last in ranges:
                if not before < first <= last:
                    raise ValueError(
                        f"the ranges {ranges} of length {length} must be first ≤ last, from 1 up, "
                        "in order and apart"
                    )
                before = last
        for left, right in self.forbidden_transitions:
            if left < 0 or right < 0 or left == right:
                raise ValueError(
                    f"({left}, {right}) is no transition: expected two different lengths ≥ 0"
                )
        return self

    def contains(self, batch_size: int, draft_length: int) -> bool:
        """Whether a table may use `draft_length` at `batch_size`."""
        ranges = self.allowed.get(str(draft_length), ())
        return any(first <= batch_size <= last for first, last in ranges)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The draft lengths that are allowed at some batch size, in rising order."""
        return tuple(sorted(int(k) for k, ranges in self.allowed.items() if ranges))
