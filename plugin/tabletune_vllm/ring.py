"""The ring of step records: fixed binary records in one buffer allocated at start.

Appending packs one record in place; reading copies bytes, so that the engine's thread pays
microseconds even for thousands of steps. The API server's process does the decoding.
"""

import struct
from typing import TypedDict, cast

import numpy as np

FLOAT_COLUMNS = ("time_s", "step_time_s", "kv_cache_usage")
INT_COLUMNS = (
    "batch_size",
    "draft_length",
    "draft_length_verified",
    "scheduled_tokens",
    "prefill_requests",
    "prefill_tokens",
    "request_steps",
    "drafted_requests",
    "draft_tokens",
    "min_draft_tokens",
    "max_draft_tokens",
    "verified_requests",
    "invalid_requests",
    "output_tokens",
    "running_requests",
    "waiting_requests",
    "preempted_requests",
    "graph_mode",
    "padded_tokens",
    "after_idle",
    "disturbed",
)


class StepBatch(TypedDict):
    """Consecutive records as bytes: steps first … next-1; lost counts the overwritten ones."""

    first: int
    next: int
    lost: int
    max_draft_length: int
    data: bytes


class StepRing:
    """The last `capacity` records of an engine with lengths 0 … max_draft_length."""

    def __init__(self, max_draft_length: int, capacity: int) -> None:
        self.max_draft_length = max_draft_length
        self.capacity = capacity
        self.next = 0
        self._record = struct.Struct(
            f"={len(FLOAT_COLUMNS)}d{len(INT_COLUMNS) + 2 * max_draft_length}i"
        )
        self._buffer = bytearray(self._record.size * capacity)

    def append(self, *values: float) -> None:
        """Write one record: the float columns, the int columns, drafted, then accepted."""
        offset = (self.next % self.capacity) * self._record.size
        self._record.pack_into(self._buffer, offset, *values)
        self.next += 1

    def read(self, since: int, limit: int) -> StepBatch:
        """Up to `limit` records from sequence number `since` on, oldest first."""
        oldest = max(0, self.next - self.capacity)
        first = min(max(since, oldest), self.next)
        end = min(first + limit, self.next)
        size = self._record.size
        start_slot, end_slot = first % self.capacity, end % self.capacity
        if end == first:
            data = b""
        elif start_slot < end_slot:
            data = bytes(self._buffer[start_slot * size : end_slot * size])
        else:
            data = bytes(self._buffer[start_slot * size :] + self._buffer[: end_slot * size])
        return {
            "first": first,
            "next": end,
            "lost": max(0, oldest - since),
            "max_draft_length": self.max_draft_length,
            "data": data,
        }


def record_dtype(max_draft_length: int) -> np.dtype[np.void]:
    """The layout of one record, for numpy."""
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = [
        *((name, "=f8") for name in FLOAT_COLUMNS),
        *((name, "=i4") for name in INT_COLUMNS),
        ("drafted_through", "=i4", (max_draft_length,)),
        ("accepted_through", "=i4", (max_draft_length,)),
    ]
    return np.dtype(fields)


def decode_steps(batch: StepBatch) -> dict[str, object]:
    """A batch as columnar JSON values: every column has next − first entries.

    drafted_through and accepted_through hold one row per step, with one entry per draft
    position 1 … max_draft_length.
    """
    records = np.frombuffer(batch["data"], dtype=record_dtype(batch["max_draft_length"]))
    names = cast(tuple[str, ...], records.dtype.names)
    return {
        "first": batch["first"],
        "next": batch["next"],
        "lost": batch["lost"],
        "columns": {name: records[name].tolist() for name in names},
    }
