"""Which batch sizes the engine runs at, lately."""

from __future__ import annotations

import numpy as np

from tabletune.core.controller.observation import LiveObservation
from tabletune.core.words import FloatArray, IntArray

_FORGOTTEN = 2e-3  # a share below this counts as none


class LiveBatches:
    """Seconds by batch size, fading; and how often a step there is steady."""

    def __init__(self, max_batch_size: int, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._seconds = np.zeros(max_batch_size)
        self._steps = 0.0
        self._steady = 0.0
        self.last_batch_size = 0

    def update(self, observation: LiveObservation, elapsed_s: float) -> None:
        """Take one tick in; an idle one changes nothing."""
        if not observation.steps:
            return
        keep = 0.5 ** (elapsed_s / self._half_life_s)
        self._seconds *= keep
        self._steps *= keep
        self._steady *= keep
        self.last_batch_size = min(observation.last_batch_size, self._seconds.size)
        for batch in observation.batches:
            index = min(batch.batch_size, self._seconds.size) - 1
            self._seconds[index] += batch.seconds
            self._steps += batch.steps
            self._steady += batch.steady

    def shares(self) -> FloatArray:
        """Share of the time at each batch size, float64[B]; zeros before any step."""
        total = float(self._seconds.sum())
        if total <= 0:
            return np.zeros(self._seconds.size)
        shares = self._seconds / total
        return np.where(shares < _FORGOTTEN, 0.0, shares)

    def rows(self) -> IntArray:
        """Batch size - 1 of the sizes with a share, ascending, the newest step's included."""
        live = self.shares() > 0
        if self.last_batch_size:
            live[self.last_batch_size - 1] = True
        return np.flatnonzero(live)

    @property
    def steady_share(self) -> float:
        """Share of the steps that tell a step time, 0..1."""
        return self._steady / self._steps if self._steps > 0 else 0.0
