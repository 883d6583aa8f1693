"""What the target accepts in a step, or in a block of equal steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tabletune.core.words import IntArray
from tabletune.simulate.draws import StepDraws
from tabletune.simulate.slots import Slots


@dataclass(frozen=True, eq=False)
class Verified:
    """Of a block of steps: accepted, proposed: bool[steps, K, S], by guess and slot; proposed
    is None where every draft is full."""

    accepted: npt.NDArray[np.bool_]
    proposed: npt.NDArray[np.bool_] | None

    def first(self, steps: int) -> Verified:
        proposed = None if self.proposed is None else self.proposed[:steps]
        return Verified(self.accepted[:steps], proposed)

    def emitted(self, decoding: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
        """Tokens per slot over the block, int32[S]."""
        accepted = self.accepted.sum(axis=(0, 1), dtype=np.int32)
        return accepted + len(self.accepted) * decoding.astype(np.int32)

    def counts(self, part: slice, live: int) -> tuple[IntArray, IntArray]:
        """(drafted through, accepted through) int64[n, K] of part of the block."""
        accepted = np.count_nonzero(self.accepted[part], axis=2)
        if self.proposed is None:
            return np.full(accepted.shape, live), accepted
        return np.count_nonzero(self.proposed[part], axis=2), accepted


class Verifier:
    """Compares the drawn numbers with the thresholds of the slots."""

    def __init__(self, slots: Slots, draws: StepDraws) -> None:
        self._slots, self._draws = slots, draws
        shape = slots.accept.shape
        self._hit = np.zeros(shape, dtype=np.bool_)
        self._found = np.zeros(shape, dtype=np.bool_)
        self._emitted = np.zeros(shape[1], dtype=np.int8)
        self._live = 0

    def step(self, verified_length: int) -> tuple[npt.NDArray[np.int8], int]:
        """(tokens per slot int8[S], tokens in all) of one step, beyond the end of a request
        too. Valid until the next call."""
        slots, emitted = self._slots, self._emitted
        self._live = slots.live
        if verified_length == 0:
            emitted[:] = slots.decoding
            return emitted, slots.live
        row = self._draws.row
        hit = self._hit[:verified_length]
        np.less(self._draws.accept[row], slots.accept[:verified_length], out=hit)
        if slots.propose is not None and self._draws.propose is not None:
            found = self._found[:verified_length]
            np.less(self._draws.propose[row], slots.propose[:verified_length], out=found)
            np.logical_and(hit, found, out=hit)
        np.add.reduce(hit.view(np.int8), axis=0, out=emitted)
        np.add(emitted, slots.decoding, out=emitted)
        return emitted, slots.live + int(np.count_nonzero(hit))

    def drafted(self, verified_length: int) -> int:
        """Guesses proposed in the step just verified."""
        return int(self.counts(verified_length)[0].sum())

    def counts(self, verified_length: int) -> tuple[IntArray, IntArray]:
        """(drafted through, accepted through) int64[1, K] of the step just verified."""
        accepted = np.count_nonzero(self._hit[None, :verified_length], axis=2)
        if self._slots.propose is None:
            return np.full(accepted.shape, self._live), accepted
        return np.count_nonzero(self._found[None, :verified_length], axis=2), accepted

    def block(self, verified_length: int, steps: int) -> Verified:
        """The next `steps` steps, in none of which a request ends."""
        slots, draws = self._slots, self._draws
        rows = slice(draws.row, draws.row + steps)
        hit = draws.accept[rows, None, :] < slots.accept[None, :verified_length]
        found = None
        if slots.propose is not None and draws.propose is not None:
            found = draws.propose[rows, None, :] < slots.propose[None, :verified_length]
            hit &= found
        return Verified(hit, found)
