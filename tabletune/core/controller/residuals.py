"""Live over profiled step times: what the profile is wrong by, per batch size and length.

The log of the ratio is modelled as common(b, t) + offset(b, K): context growth, clocks and
neighbours shift all lengths alike and quickly; an error of the profile belongs to one length
and stays. Both are smooth in the batch size. A Kalman filter over groups of batch sizes keeps
means and covariances, so that a length never seen at b takes over what is common there, and
the doubt about "K' against K at b" is known exactly; it relaxes towards 1 where nothing is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np

from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.words import Cell, FloatArray, IntArray

_GROUP_RATIO = 1.1  # batch sizes of a group differ by at most this
_LEAST_SD = 0.01  # of one step's log time, whatever its sample says
_CORRELATED = 2.0  # neighbouring steps are not independent
_FIRST_SD = 0.03  # of one step's log time, before any was seen
_STEP_SD_MEMORY = 0.001  # per step
_RELAX_S = 2.0  # relaxing costs more than all else, and nothing happens within this time


class StepTimeResiduals:
    """Log residuals for batch sizes 1..max_batch_size and the given lengths."""

    def __init__(
        self, max_batch_size: int, lengths: tuple[int, ...], settings: ControllerSettings
    ) -> None:
        self._settings = settings
        self._column = {k: j for j, k in enumerate(lengths)}
        self._width = len(lengths) + 1
        edges = _groups(max_batch_size)
        self.group_of: IntArray = np.zeros(max_batch_size + 1, dtype=np.int64)
        for index, (first, after) in enumerate(pairwise(edges)):
            self.group_of[first:after] = index
        centres = np.array([np.log((a + b - 1) / 2) for a, b in pairwise(edges)])
        self._prior = _prior_covariance(centres, self._width, settings)
        self._mean = np.zeros(self._prior.shape[0])
        self._covariance = self._prior.copy()
        self._half_lives = np.full(self._mean.size, settings.offset_half_life_s)
        self._half_lives[:: self._width] = settings.common_half_life_s
        self._waiting_s = 0.0
        self._step_variance = _FIRST_SD**2

    def update(self, cells: Iterable[tuple[Cell, int, float, float]], elapsed_s: float) -> None:
        """cells: ((batch size, draft length), steps, mean log ratio, log sd of a step)."""
        self._waiting_s += elapsed_s
        if self._waiting_s >= _RELAX_S:
            self._relax(self._waiting_s)
            self._waiting_s = 0.0
        for (group, column), (value, variance) in self._pooled(cells).items():
            self._observe(group, column, value, variance)

    def _relax(self, elapsed_s: float) -> None:
        keep = 0.5 ** (elapsed_s / self._half_lives)
        self._mean *= keep
        both = keep[:, None] * keep[None, :]
        self._covariance -= self._prior
        self._covariance *= both
        self._covariance += self._prior

    def _pooled(
        self, cells: Iterable[tuple[Cell, int, float, float]]
    ) -> Mapping[Cell, tuple[float, float]]:
        """Per (group, column): the mean ratio, weighted with the steps, and its variance."""
        sums: dict[Cell, tuple[float, float, float]] = {}
        for (batch_size, length), steps, ratio, log_sd in cells:
            if length not in self._column or not 0 < batch_size < self.group_of.size:
                continue
            key = int(self.group_of[batch_size]), self._column[length]
            if steps > 2:
                share = min(steps * _STEP_SD_MEMORY, 0.2)
                self._step_variance += share * (log_sd**2 - self._step_variance)
            spread = max(log_sd, _LEAST_SD if steps > 2 else 3 * _LEAST_SD) ** 2
            n, weighted, spreads = sums.get(key, (0.0, 0.0, 0.0))
            sums[key] = n + steps, weighted + steps * ratio, spreads + steps * spread
        floor = self._settings.tick_sd**2
        return {
            key: (weighted / n, spreads / n * _CORRELATED / n + floor)
            for key, (n, weighted, spreads) in sums.items()
        }

    def _observe(self, group: int, column: int, value: float, variance: float) -> None:
        common = group * self._width
        offset = common + 1 + column
        gain = self._covariance[common] + self._covariance[offset]
        expected = self._mean[common] + self._mean[offset]
        innovation = value - expected
        total = float(gain[common] + gain[offset]) + variance
        self._mean += gain * (innovation / total)
        self._covariance -= np.outer(gain, gain / total)

    def log_ratio(self) -> FloatArray:
        """Mean log residual by batch size and column, float64[B, L]."""
        grid = self._mean.reshape(-1, self._width)
        return (grid[:, :1] + grid[:, 1:])[self.group_of[1:]]

    def factor(self, batch_size: int, draft_length: int) -> float:
        """Live over profiled step time of one cell; 1 for a length that is not known."""
        column = self._column.get(draft_length)
        if column is None:
            return 1.0
        common = int(self.group_of[batch_size]) * self._width
        return float(np.exp(self._mean[common] + self._mean[common + 1 + column]))

    def contrast_covariance(self, batch_size: int, columns: IntArray) -> FloatArray:
        """How what is measured of each length at `batch_size` bears on the other batch sizes:
        covariance of log T(b', K') - log T(b', own) with log T(b, K') - log T(b, own),
        float64[B, L]. columns: int64[B], the column of each batch size's own length.
        """
        count = self._covariance.shape[0] // self._width
        blocks = self._covariance.reshape(count, self._width, count, self._width)
        here = int(self.group_of[batch_size])
        with_here = blocks[:, 1:, here, 1:][self.group_of[1:]]
        rows, own = np.arange(columns.size), int(columns[batch_size - 1])
        every = np.arange(self._width - 1)
        return (
            with_here[:, every, every]
            - with_here[:, :, own]
            - with_here[rows, columns, :]
            + with_here[rows, columns, own][:, None]
        )

    def probe_variance(self, steps: float) -> float:
        """Variance of the mean log time that so many steady steps give (also a part of one)."""
        return self._step_variance * _CORRELATED / max(steps, 1e-3) + self._settings.tick_sd**2

    def contrast_variance(self) -> FloatArray:
        """Variance of log T(b, K') - log T(b, K) by group, float64[G, L, L]."""
        count = self._covariance.shape[0] // self._width
        blocks = self._covariance.reshape(count, self._width, count, self._width)
        own = blocks[np.arange(count), :, np.arange(count), :][:, 1:, 1:]
        diagonal = np.einsum("gkk->gk", own)
        return np.maximum(diagonal[:, :, None] + diagonal[:, None, :] - 2 * own, 0.0)

    def summary(self) -> dict[str, float]:
        """Smallest, middle and largest factor by which live steps differ from the profile."""
        factors = np.exp(self.log_ratio())
        return {
            "least": round(float(factors.min()), 4),
            "median": round(float(np.median(factors)), 4),
            "most": round(float(factors.max()), 4),
        }


def _groups(max_batch_size: int) -> list[int]:
    """First batch size of each group, and one past the last."""
    edges = [1]
    while edges[-1] <= max_batch_size:
        edges.append(max(edges[-1] + 1, round(edges[-1] * _GROUP_RATIO)))
    edges[-1] = max_batch_size + 1
    return edges


def _prior_covariance(centres: FloatArray, width: int, settings: ControllerSettings) -> FloatArray:
    apart = np.abs(centres[:, None] - centres[None, :])
    common = settings.common_sd**2 * np.exp(-apart / settings.common_reach)
    offset = settings.offset_sd**2 * np.exp(-apart / settings.offset_reach)
    size = centres.size
    covariance = np.zeros((size, width, size, width))
    covariance[:, 0, :, 0] = common
    for column in range(1, width):
        covariance[:, column, :, column] = offset
    return covariance.reshape(size * width, size * width)
