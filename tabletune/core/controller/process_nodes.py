"""The two Gaussian processes of the residuals, filtered at a bounded number of batch sizes.

A node is a batch size with 1 + L states: common, and an offset per length. A batch size that
is seen for the first time becomes a node by conditioning on those that are there; when there
are too many, the one seen longest ago is left out.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.words import FloatArray, IntArray

_MOST_NODES = 28
_OWN_SHARE = 0.3  # of an offset's variance that neighbouring batch sizes do not share
_JITTER = 1e-9
# How wrong profiles are, as a variance over that of the settings: first sights of a length
# that the first guess is worth, first sights remembered, smallest value, largest surprise.
_FIRST_JUDGED, _SCALE_MEMORY, _LEAST_SCALE, _MOST_SURPRISE = 4.0, 30.0, 0.02, 100.0


class ProcessNodes:
    """States of `lengths` lengths over batch sizes 1..max_batch_size."""

    def __init__(self, max_batch_size: int, lengths: int, settings: ControllerSettings) -> None:
        self._settings = settings
        self._width = lengths + 1
        self._log_b = np.log(np.arange(1.0, max_batch_size + 1))
        self._nodes: list[int] = []  # rows: batch size - 1
        self._clock = 0
        self._seen: dict[int, int] = {}
        self._columns: dict[int, set[int]] = {}
        self._judged, self._scale, self._found_scale = _FIRST_JUDGED, 1.0, 1.0
        self._offset_variance = settings.offset_sd**2
        self._mean = np.zeros(0)
        self._covariance = np.zeros((0, 0))
        self._prior = np.zeros((0, 0))
        self._weights: tuple[FloatArray, FloatArray] | None = None
        self._means: FloatArray | None = None
        self._decay = np.array(
            [settings.common_half_life_s, *[settings.offset_half_life_s] * lengths]
        )

    @property
    def offset_variance(self) -> float:
        """Of one length's offset, before anything is seen of it."""
        return self._offset_variance

    def relax(self, elapsed_s: float) -> None:
        """Drift back towards what is thought without any observation."""
        keep = 0.5 ** (elapsed_s / np.tile(self._decay, len(self._nodes)))
        self._mean *= keep
        self._covariance -= self._prior
        self._covariance *= keep[:, None]
        self._covariance *= keep[None, :]
        self._covariance += self._prior
        self._means = None

    def observe(self, batch_size: int, column: int, value: float, variance: float) -> None:
        """common + offset of the column at the batch size was seen to be `value`."""
        row = batch_size - 1
        if not 0 <= row < self._log_b.size:
            return
        self._clock += 1
        if row not in self._seen:
            self._add(row)
        self._seen[row] = self._clock
        common = self._nodes.index(row) * self._width
        offset = common + 1 + column
        gain = self._covariance[common] + self._covariance[offset]
        innovation = value - float(self._mean[common] + self._mean[offset])
        expected = float(gain[common] + gain[offset])
        total = expected + variance
        surprise = max(innovation**2 - variance, 0.0) / expected
        self._mean += gain * (innovation / total)
        self._covariance -= np.outer(gain, gain / total)
        self._means = None
        self._judge(row, column, surprise)

    def _judge(self, row: int, column: int, surprise: float) -> None:
        """Learn from the first sight of a length, where another one is known, how wrong the
        profile is at all: every length that was as profiled makes the next one likelier to be.
        """
        columns = self._columns.setdefault(row, set())
        if column in columns:
            return
        columns.add(column)
        if len(columns) == 1:
            return
        self._judged = min(self._judged + 1.0, _SCALE_MEMORY)
        found = min(surprise, _MOST_SURPRISE) * self._scale
        self._found_scale += (found - self._found_scale) / self._judged
        wanted = min(max(self._found_scale, _LEAST_SCALE), 1.0)
        if not 0.8 < wanted / self._scale < 1.25:
            self._rescale(wanted)

    def _rescale(self, scale: float) -> None:
        share = np.sqrt(scale / self._scale)
        factor = np.tile([1.0, *[share] * (self._width - 1)], len(self._nodes))
        both = factor[:, None] * factor[None, :]
        self._covariance *= both
        self._prior *= both
        self._scale = scale
        self._offset_variance = self._settings.offset_sd**2 * scale

    def means(self) -> FloatArray:
        """common + offset, float64[B, L]."""
        means = self._means
        if means is None:
            grid = self._mean.reshape(-1, self._width)
            common, offset = self._all_weights()
            means = self._means = common @ grid[:, :1] + offset @ grid[:, 1:]
        return means

    def offset_covariance(self, rows: IntArray) -> FloatArray:
        """Covariance of the offsets of two lengths, float64[R, L, L], at batch sizes rows + 1."""
        weights = self._all_weights()[1][rows]
        blocks = self._offset_blocks()
        half = np.tensordot(weights, blocks, axes=(1, 0))
        known: FloatArray = np.matmul(half.transpose(0, 1, 3, 2), weights[:, None, :, None])[..., 0]
        own = self._kernels(self._log_b[rows][:, None], self._log_b[self._nodes][None, :])[1]
        left = self._offset_variance - (weights * own).sum(axis=1)
        return known + left[:, None, None] * np.eye(self._width - 1)

    def offset_covariance_with(self, row: int, rows: IntArray) -> FloatArray:
        """Covariance of offset k at each of `rows` with offset l at `row`, float64[R, L, L]."""
        offset = self._all_weights()[1]
        with_row = np.tensordot(self._offset_blocks(), offset[row], axes=(2, 0))
        known = cast(FloatArray, np.tensordot(offset[rows], with_row, axes=(1, 0)))
        nodes = self._log_b[self._nodes]
        direct = self._kernels(self._log_b[rows], self._log_b[row])[1]
        through = offset[rows] @ self._kernels(nodes, self._log_b[row])[1]
        return known + (direct - through)[:, None, None] * np.eye(self._width - 1)

    def _offset_blocks(self) -> FloatArray:
        count, width = len(self._nodes), self._width
        return self._covariance.reshape(count, width, count, width)[:, 1:, :, 1:]

    def _all_weights(self) -> tuple[FloatArray, FloatArray]:
        """How every batch size follows from the nodes: float64[B, N], common and offset."""
        if self._weights is None:
            self._weights = self._weights_of(self._log_b)
        return self._weights

    def _weights_of(self, log_b: FloatArray) -> tuple[FloatArray, FloatArray]:
        nodes = self._log_b[self._nodes]
        if nodes.size == 0:
            return np.zeros((log_b.size, 0)), np.zeros((log_b.size, 0))
        among = self._kernels(nodes[:, None], nodes[None, :])
        towards = self._kernels(nodes[:, None], log_b[None, :])
        jitter = _JITTER * np.eye(nodes.size)
        # Weights do not depend on the scale of a kernel, but the jitter must.
        common, offset = (
            cast(FloatArray, np.linalg.solve(k + jitter * k[0, 0], t))
            for k, t in zip(among, towards, strict=True)
        )
        return common.T, offset.T

    def _kernels(self, one: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Prior covariances of common and offset between log batch sizes, broadcast."""
        settings = self._settings
        apart = np.abs(np.asarray(one - other, dtype=np.float64))
        common = settings.common_sd**2 * np.exp(-apart / settings.common_reach)
        shared = (1 - _OWN_SHARE) * np.exp(-apart / settings.offset_reach)
        offset = self._offset_variance * (shared + _OWN_SHARE * (apart < _JITTER))
        return common, offset

    def _add(self, row: int) -> None:
        if len(self._nodes) == _MOST_NODES:
            self._drop(min(self._nodes, key=lambda r: (self._seen[r], r)))
        width, count = self._width, len(self._nodes)
        common, offset = (w[0] for w in self._weights_of(self._log_b[row : row + 1]))
        follows = np.zeros((width, count, width))
        follows[0, :, 0] = common
        for state in range(1, width):
            follows[state, :, state] = offset
        follows = follows.reshape(width, count * width)
        own = np.diag([self._settings.common_sd**2, *[self._offset_variance] * (width - 1)])
        prior_cross = follows @ self._prior
        left = own - prior_cross @ follows.T
        cross = follows @ self._covariance
        self._covariance = _bordered(self._covariance, cross, cross @ follows.T + left)
        self._prior = _bordered(self._prior, prior_cross, own)
        self._mean = np.concatenate((self._mean, follows @ self._mean))
        self._nodes.append(row)
        self._weights = self._means = None

    def _drop(self, row: int) -> None:
        first = self._nodes.index(row) * self._width
        gone = np.arange(first, first + self._width)
        self._mean = np.delete(self._mean, gone)
        self._covariance = np.delete(np.delete(self._covariance, gone, 0), gone, 1)
        self._prior = np.delete(np.delete(self._prior, gone, 0), gone, 1)
        self._nodes.remove(row)
        del self._seen[row]
        del self._columns[row]
        self._weights = self._means = None


def _bordered(square: FloatArray, cross: FloatArray, corner: FloatArray) -> FloatArray:
    """[[square, cross.T], [cross, corner]]."""
    size, more = square.shape[0], corner.shape[0]
    whole = np.empty((size + more, size + more))
    whole[:size, :size], whole[size:, :size] = square, cross
    whole[:size, size:], whole[size:, size:] = cross.T, corner
    return whole
