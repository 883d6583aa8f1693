"""The running batch: one slot per running request, as arrays over the slots."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from tabletune.simulate.acceptance import AcceptanceModel, Thresholds

IDLE = np.int32(2_000_000_000)
"""`remaining` of a slot that does not decode: it never runs out."""


class Slots:
    """remaining: int32[S], output tokens still to give. decoding: int8[S], 1 where a request
    decodes. accept, propose: float32[K, S], thresholds of its guesses; 0 where none decodes.
    request: who is in the slot. quality: of that request. live: how many decode.
    """

    def __init__(self, count: int, models: tuple[AcceptanceModel, ...]) -> None:
        longest = models[0].max_draft_length
        self.remaining = np.full(count, IDLE, dtype=np.int32)
        self.decoding = np.zeros(count, dtype=np.int8)
        self.accept = np.zeros((longest, count), dtype=np.float32)
        self.propose: Thresholds | None = None
        if any(m.proposal_rate is not None for m in models):
            self.propose = np.zeros((longest, count), dtype=np.float32)
        full = np.ones(longest, dtype=np.float32)
        self._rates: list[npt.NDArray[np.float32]] = [
            full if m.proposal_rate is None else m.proposal_rate.astype(np.float32) for m in models
        ]
        self.request = [-1] * count
        self.quality = [0.0] * count
        self.rows: list[Thresholds] = [full] * count
        self.free = list(range(count))
        self.live = 0

    def take(self, request: int) -> int:
        """The lowest free slot, now the request's."""
        slot = heappop(self.free)
        self.request[slot] = request
        return slot

    def start(self, slot: int, remaining: int, kind: int) -> None:
        """Let the request of a slot decode."""
        self.remaining[slot] = remaining
        self.decoding[slot] = 1
        self.set_kind(slot, kind)
        self.live += 1

    def set_kind(self, slot: int, kind: int) -> None:
        """Put the thresholds of the slot's request (`rows`) in force."""
        self.accept[:, slot] = self.rows[slot]
        if self.propose is not None:
            self.propose[:, slot] = self._rates[kind]

    def stop(self, slot: int) -> None:
        """The request of a slot no longer decodes; the slot stays taken."""
        self.remaining[slot] = IDLE
        self.decoding[slot] = 0
        self.accept[:, slot] = 0.0
        if self.propose is not None:
            self.propose[:, slot] = 0.0
        self.live -= 1

    def release(self, slot: int) -> None:
        self.request[slot] = -1
        heappush(self.free, slot)
