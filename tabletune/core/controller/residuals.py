"""Live over profiled step times: what the profile is wrong by, per batch size and length.

The log of the ratio is modelled as common(b, t) + offset(b, K): context growth, clocks and
neighbours shift all lengths alike and quickly; an error of the profile belongs to one length
and stays. Both are Gaussian processes in the logarithm of the batch size, offsets with a part
that does not carry over to neighbours (a profile errs by whole stairs). A Kalman filter keeps
means and covariances at the batch sizes that are seen; so a length never seen at b takes over
what is common there, the doubt about "K' against K at b" is known, and what is not seen
relaxes towards 1. Source of the filter on a grid: Hartikainen and Sarkka 2010.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tabletune.core.controller.observation import Bools
from tabletune.core.controller.process_nodes import ProcessNodes
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.controller.stretch import STRETCH_STEPS
from tabletune.core.words import Cell, FloatArray, IntArray

_LEAST_SD = 0.01  # of one step's log time, whatever its sample says
_CORRELATED = 2.0  # neighbouring steps are not independent
_FIRST_SD = 0.03  # of one step's log time, before any was seen
_STEP_SD_MEMORY = 0.001  # per step
_STRETCH_MEMORY = 20.0  # ticks
_MOST_CELLS = 24  # taken in per tick, those with most steps
_RELAX_S = 2.0  # relaxing costs more than all else, and nothing happens within this time

CellRatio = tuple[Cell, int, float, float]
"""((batch size, draft length), steady steps, mean log ratio, log sd of a step)."""


class StepTimeResiduals:
    """Log residuals for batch sizes 1..max_batch_size and the given lengths."""

    def __init__(
        self, max_batch_size: int, lengths: tuple[int, ...], settings: ControllerSettings
    ) -> None:
        self._settings = settings
        self._column = {k: j for j, k in enumerate(lengths)}
        self._nodes = ProcessNodes(max_batch_size, len(lengths), settings)
        self._waiting_s = 0.0
        self._step_variance = _FIRST_SD**2
        self._stretch_variance, self._told = 0.0, 0.0

    def update(
        self, cells: Iterable[CellRatio], elapsed_s: float, stretch_sd: float | None = None
    ) -> None:
        """Take in one tick's cells. stretch_sd: see stretch.py; None where it is not known."""
        if stretch_sd is not None:
            self._told = min(self._told + 1.0, _STRETCH_MEMORY)
            self._stretch_variance += (stretch_sd**2 - self._stretch_variance) / self._told
        self._waiting_s += elapsed_s
        if self._waiting_s >= _RELAX_S:
            self._nodes.relax(self._waiting_s)
            self._waiting_s = 0.0
        known = [cell for cell in cells if cell[0][1] in self._column]
        known.sort(key=lambda cell: (-cell[1], cell[0]))
        for (batch_size, length), steps, ratio, log_sd in known[:_MOST_CELLS]:
            if steps > 2:
                share = min(steps * _STEP_SD_MEMORY, 0.2)
                self._step_variance += share * (log_sd**2 - self._step_variance)
            # The spread of a few steps says little: it is taken together with the usual one.
            spread = (steps * log_sd**2 + 4 * self._step_variance) / (steps + 4)
            variance = self._mean_variance(max(spread, _LEAST_SD**2), steps)
            self._nodes.observe(batch_size, self._column[length], ratio, variance)

    def log_ratio(self) -> FloatArray:
        """Mean log residual by batch size and column, float64[B, L]."""
        return self._nodes.means()

    def factor(self, batch_size: int, draft_length: int) -> float:
        """Live over profiled step time of one cell; 1 for a length that is not known."""
        column = self._column.get(draft_length)
        if column is None:
            return 1.0
        return float(np.exp(self._nodes.means()[batch_size - 1, column]))

    def contrast_variance(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Variance of log T(b, K') - log T(b, own), float64[R, L], at the batch sizes
        rows + 1; columns: int64[R], the column of each one's own length."""
        each = np.arange(rows.size)
        own = self._nodes.offset_covariance(rows)
        diagonal = np.einsum("rkk->rk", own)
        apart = diagonal + diagonal[each, columns][:, None] - 2 * own[each, :, columns]
        return np.maximum(apart, 0.0)

    def compared(self, rows: IntArray, columns: IntArray) -> Bools:
        """Whether each length was itself measured against the own one, at or near the batch sizes
        rows + 1: bool[R, L]. What was not is known by the profile and by what is thought common."""
        compared: Bools = self.contrast_variance(rows, columns) < self._nodes.offset_variance
        return compared

    def contrast_covariance(self, row: int, rows: IntArray, columns: IntArray) -> FloatArray:
        """How what is measured of each length at batch size row + 1 bears on others: covariance
        of log T(b', K') - log T(b', own) with log T(b, K') - log T(b, own), float64[R, L].
        row must be among rows; columns as in `contrast_variance`.
        """
        each = np.arange(rows.size)
        here = int(columns[int(np.flatnonzero(rows == row)[0])])
        cross = self._nodes.offset_covariance_with(row, rows)
        return (
            np.einsum("rkk->rk", cross)
            - cross[:, :, here]
            - cross[each, columns, :]
            + cross[each, columns, here][:, None]
        )

    def probe_variance(self, steps: float) -> float:
        """Variance of the mean log time that so many steady steps give (also a part of one)."""
        return self._mean_variance(self._step_variance, max(steps, 1e-3))

    def _mean_variance(self, step_variance: float, steps: float) -> float:
        """Of the mean log time of so many steps, which lie in as few stretches as they can."""
        stretches = max(1.0, steps / STRETCH_STEPS)
        apart = self._stretch_variance / stretches + self._settings.tick_sd**2
        return step_variance * _CORRELATED / steps + apart

    def summary(self) -> dict[str, float]:
        """Smallest, middle and largest factor by which live steps differ from the profile."""
        factors = np.exp(self.log_ratio())
        return {
            "least": round(float(factors.min()), 4),
            "median": round(float(np.median(factors)), 4),
            "most": round(float(factors.max()), 4),
        }
