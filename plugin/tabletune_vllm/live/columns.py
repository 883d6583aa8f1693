"""From the ring of step records to the controller's columns."""

from collections.abc import Callable
from typing import cast

import numpy as np

from tabletune.core.controller.observation import StepColumns
from tabletune_vllm.ring import StepBatch, StepRing, record_dtype


class StepReader:
    """Reads what was recorded since the last read.

    There is no lock: a record is complete once the ring's `next` has moved past it, and those
    that were overwritten while they were copied are left out. `lost` counts records that were
    never seen, `implausible` those with impossible values: counters or clocks that run
    backwards, more accepted than drafted. Neither reaches the controller. settle: called before
    each read, so that the ring has every step so far.
    """

    def __init__(self, ring: StepRing, settle: Callable[[], None] = lambda: None) -> None:
        self._ring = ring
        self._settle = settle
        self._dtype = record_dtype(ring.max_draft_length)
        self.position = ring.next
        self.lost = 0
        self.implausible = 0

    def skip(self) -> None:
        """Leave out what was recorded so far."""
        self._settle()
        self.position = self._ring.next

    def read(self) -> StepColumns:
        """The new steps, oldest first."""
        self._settle()
        batch = self._ring.read(self.position, self._ring.capacity)
        safe = self._ring.next - self._ring.capacity
        overwritten = min(max(0, safe - batch["first"]), batch["next"] - batch["first"])
        self.lost += batch["lost"] + overwritten
        self.position = batch["next"]
        records = self._decode(batch)[overwritten:]
        plausible = self._plausible(records)
        self.implausible += len(records) - int(plausible.sum())
        return _columns(records[plausible])

    def _decode(self, batch: StepBatch) -> np.ndarray:
        return np.frombuffer(batch["data"], dtype=self._dtype)

    def _plausible(self, records: np.ndarray) -> np.ndarray:
        drafted, accepted = records["drafted_through"], records["accepted_through"]
        good = np.isfinite(records["time_s"]) & np.isfinite(records["step_time_s"])
        good &= (records["step_time_s"] >= 0) & (records["batch_size"] > 0)
        good &= (records["prefill_requests"] >= 0) & (records["output_tokens"] >= 0)
        good &= records["request_steps"] >= 0
        good &= (accepted >= 0).all(axis=1) & (accepted <= drafted).all(axis=1)
        good &= (np.diff(drafted, axis=1) <= 0).all(axis=1)
        good &= (np.diff(accepted, axis=1) <= 0).all(axis=1)
        return cast(np.ndarray, good)


def _columns(records: np.ndarray) -> StepColumns:
    def whole(name: str) -> np.ndarray:
        return records[name].astype(np.int64)

    undisturbed = (records["disturbed"] == 0) & (records["after_idle"] == 0)
    # The first record has no step before it, so its time is none.
    undisturbed &= records["step_time_s"] > 0
    return StepColumns(
        time_s=records["time_s"].astype(np.float64),
        step_time_s=records["step_time_s"].astype(np.float64),
        batch_size=whole("batch_size"),
        draft_length=whole("draft_length"),
        verified_length=whole("draft_length_verified"),
        prefill_requests=whole("prefill_requests"),
        # Drafts that a grammar made invalid count neither as drafted nor as offered.
        request_steps=np.maximum(whole("request_steps") - whole("invalid_requests"), 0),
        drafted_requests=whole("drafted_requests"),
        output_tok=whole("output_tokens"),
        waiting_requests=whole("waiting_requests"),
        undisturbed=undisturbed,
        drafted_through=whole("drafted_through"),
        accepted_through=whole("accepted_through"),
    )
