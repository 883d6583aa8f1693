"""Profiled step times and usable cells of a promotion as dense arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tabletune.core.controller.promoted import Promoted
from tabletune.core.words import IntArray

Bools = npt.NDArray[np.bool_]


class Plane:
    """lengths: the L lengths of any usable cell, and of the promoted table.

    log_time: float64[B, L], log seconds of a profiled step; NaN where not known.
    usable: bool[B, L]: inside the envelope, measured, and a usable length; where that leaves
    nothing at a batch size, the promoted table's length there.
    """

    def __init__(self, promoted: Promoted) -> None:
        surface, size = promoted.surface, promoted.max_num_seqs
        self.lengths = tuple(sorted({*promoted.usable, *promoted.lengths}))
        self._column = {k: j for j, k in enumerate(self.lengths)}
        self.log_time = np.full((size, len(self.lengths)), np.nan)
        self.usable: Bools = np.zeros(self.log_time.shape, dtype=np.bool_)
        allowed = set(promoted.usable)
        for j, k in enumerate(self.lengths):
            for b in range(1, size + 1):
                if surface.covered(b, k):
                    self.log_time[b - 1, j] = np.log(surface.step_time_s(b, k))
                    self.usable[b - 1, j] = k in allowed and promoted.envelope(b, k)
        self._anchor(promoted)

    def _anchor(self, promoted: Promoted) -> None:
        for i in np.flatnonzero(~self.usable.any(axis=1)).tolist():
            column = self._column[promoted.lengths[i]]
            self.usable[i, column] = True
            if np.isnan(self.log_time[i, column]):
                known = self.log_time[np.isfinite(self.log_time)]
                # Alone at its batch size: its time decides nothing.
                self.log_time[i, column] = float(known.max()) if known.size else 0.0

    @property
    def max_batch_size(self) -> int:
        return int(self.usable.shape[0])

    def columns_of(self, lengths: tuple[int, ...]) -> IntArray:
        """Column of each batch size's length, int64[B]; -1 where it is not in the plane."""
        return np.array([self._column.get(k, -1) for k in lengths], dtype=np.int64)

    def step_time_s(self, batch_size: int, draft_length: int) -> float | None:
        """Profiled seconds of a step; None where not known."""
        column = self._column.get(draft_length)
        if column is None or not 1 <= batch_size <= self.max_batch_size:
            return None
        value = float(self.log_time[batch_size - 1, column])
        return None if np.isnan(value) else float(np.exp(value))
