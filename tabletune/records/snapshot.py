"""What one serving engine learned and did: small, bounded, written from time to time."""

from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from tabletune.core.counts import SurvivalCounts
from tabletune.records.acceptance import PositionCounts
from tabletune.records.base import (
    HASH_OR_EMPTY_PATTERN,
    MAX_BATCH_SIZE,
    MAX_DRAFT_LENGTH,
    Facts,
    Record,
    RecordError,
)
from tabletune.records.pointer import CHANNEL_PATTERN
from tabletune.records.table import Table

#: Larger snapshots are neither written nor read: a fleet's are read together.
MAX_SNAPSHOT_BYTES: Final = 256 * 1024
MAX_CELLS: Final = 512
MAX_BATCH_SIZES: Final = 512
MAX_DECISIONS: Final = 32
MAX_REASON: Final = 300
MAX_RANGES: Final = 64

#: An engine run's name; also the name of its snapshot in a store.
RUN_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"

BatchSize = Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)]
DraftLength = Annotated[int, Field(ge=0, le=MAX_DRAFT_LENGTH)]
Seconds = Annotated[float, Field(ge=0)]


class EngineRun(Facts):
    """Which engine, and since when. `run_id` is new with each engine start."""

    run_id: str = Field(pattern=RUN_ID_PATTERN)
    started_unix_s: Seconds
    plugin_version: str
    vllm_version: str
    runner: str
    device: str
    method: str


class LiveCell(Facts):
    """Steady steps of one (batch size, draft length): how many, their mean, and the profile's
    step time; None where the profile does not cover the cell."""

    batch_size: BatchSize
    draft_length: DraftLength
    steps: int = Field(ge=1)
    step_time_s: float = Field(gt=0)
    profiled_step_time_s: float | None = Field(default=None, gt=0)

    @property
    def residual(self) -> float | None:
        """Live over profiled step time."""
        profiled = self.profiled_step_time_s
        return None if profiled is None else self.step_time_s / profiled


class BatchUse(Facts):
    """All steps of one batch size."""

    batch_size: BatchSize
    steps: int = Field(ge=1)
    seconds: Seconds
    output_tok: int = Field(ge=0)


class DecisionNote(Facts):
    """A decision that changed something: `ranges` are [first, last, K] of the table that it put
    in force, None for a probe and for a table of more ranges than are kept."""

    unix_s: Seconds
    kind: str
    reason: str = Field(max_length=MAX_REASON)
    predicted_gain: float
    ranges: tuple[tuple[BatchSize, BatchSize, DraftLength], ...] | None = Field(
        default=None, max_length=MAX_RANGES
    )


class DecisionSummary(Facts):
    """Decisions by kind since the engine run began, the last ones of those that changed
    something, the oldest first, and what exploring cost in seconds of throughput."""

    counts: dict[str, Annotated[int, Field(ge=0)]]
    last: tuple[DecisionNote, ...] = Field(default=(), max_length=MAX_DECISIONS)
    exploration_spent_s: Seconds = 0.0
    falls: int = Field(default=0, ge=0)


class LiveSnapshot(Record):
    """One engine run so far; each snapshot of a run takes the place of the one before.

    Counts, cells and batch sizes are sums over `from_unix_s` … `to_unix_s`. `offered_through[i-1]`
    counts request-steps in which the draft length in force was at least i: the denominator of
    the proposal rate, since the length varies. `survival` is what the controller believes at
    the end, after prior and fading; empty where it does not learn. `cells` and `batch_sizes`
    hold those with the most steps; `left_out_steps` counts the steady steps of cells that did
    not fit.
    """

    KIND: ClassVar[str] = "live_snapshot"

    channel: str = Field(pattern=CHANNEL_PATTERN)
    mode: str
    fingerprint: str
    engine: EngineRun
    table_version: str = Field(pattern=HASH_OR_EMPTY_PATTERN)
    table: Table
    from_unix_s: Seconds
    to_unix_s: Seconds
    counts: PositionCounts
    offered_through: tuple[Annotated[int, Field(ge=0)], ...]
    survival: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    traffic_changes: int = Field(default=0, ge=0)
    cells: tuple[LiveCell, ...] = Field(max_length=MAX_CELLS)
    left_out_steps: int = Field(default=0, ge=0)
    batch_sizes: tuple[BatchUse, ...] = Field(max_length=MAX_BATCH_SIZES)
    decisions: DecisionSummary

    @model_validator(mode="after")
    def _parts_fit(self) -> "LiveSnapshot":
        if self.to_unix_s < self.from_unix_s:
            raise ValueError(f"it ends at {self.to_unix_s}, before it began: {self.from_unix_s}")
        drafted, offered = self.counts.drafted_through, self.offered_through
        if len(drafted) != len(offered):
            raise ValueError(f"{len(drafted)} drafted but {len(offered)} offered positions")
        if any(d > o for d, o in zip(drafted, offered, strict=True)):
            raise ValueError(f"drafted {drafted} exceeds offered {offered} at some position")
        if offered and offered[0] > self.counts.request_steps:
            raise ValueError(f"{offered[0]} offered in {self.counts.request_steps} request-steps")
        for name, keys in (
            ("cell", [(cell.batch_size, cell.draft_length) for cell in self.cells]),
            ("batch size", [use.batch_size for use in self.batch_sizes]),
        ):
            if len(set(keys)) != len(keys):
                raise ValueError(f"the same {name} appears twice")
        return self

    def survival_counts(self) -> SurvivalCounts:
        """The counts for the core, as a prior for the next table.

        Raises:
            RecordError: nothing was drafted.
        """
        if not self.offered_through:
            advice = "wait until the engine drafts, or use the prior from sample prompts"
            raise RecordError(self.KIND, "it has no draft positions", advice)
        counts = self.counts
        return SurvivalCounts(
            list(counts.drafted_through),
            list(counts.accepted_through),
            counts.request_steps,
            list(self.offered_through),
        )

    def to_json(self) -> bytes:
        """See `Record.to_json`.

        Raises:
            RecordError: also when it is larger than `MAX_SNAPSHOT_BYTES`.
        """
        data = super().to_json()
        if len(data) > MAX_SNAPSHOT_BYTES:
            reason = f"it would have {len(data)} bytes, more than {MAX_SNAPSHOT_BYTES}"
            raise RecordError(self.KIND, reason, "leave out cells, batch sizes or decisions")
        return data

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """See `Record.from_json`.

        Raises:
            RecordError: also when it is larger than `MAX_SNAPSHOT_BYTES`.
        """
        if len(data) > MAX_SNAPSHOT_BYTES:
            reason = f"it has {len(data)} bytes, more than {MAX_SNAPSHOT_BYTES}"
            raise RecordError(cls.KIND, reason)
        return super().from_json(data)
