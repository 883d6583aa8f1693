"""What each length is believed to yield at each batch size, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tabletune.core.controller.plane import Bools, Plane
from tabletune.core.controller.residuals import StepTimeResiduals
from tabletune.core.controller.survival import LiveSurvival
from tabletune.core.words import FloatArray, IntArray

_BELIEVED = 0.02  # of a slowness of the length in force, whatever it was compared with
_GRAIN = 1e-9  # beliefs are rounded to it, so that machines whose last bits differ decide alike


@dataclass(frozen=True)
class Outlook:
    """log_goodput: float64[B, L], log of tokens per second and request; -inf where not usable.
    log_time: float64[B, L], log seconds of a step, corrected. expected_tokens: float64[K+1].
    contrast_sd: float64[B, L], doubt about log goodput against the length in force, at the
    live batch sizes; 0 elsewhere. live: int64[R], batch size - 1 of those.
    columns: int64[B], of the lengths in force; current: float64[B], their log goodput, NaN
    where it is not known. slopes: see `token_slopes`.
    """

    log_goodput: FloatArray
    log_time: FloatArray
    expected_tokens: FloatArray
    contrast_sd: FloatArray
    columns: IntArray
    current: FloatArray
    slopes: FloatArray
    live: IntArray

    def gain(self) -> FloatArray:
        """Log goodput over that of the length in force, float64[B, L]."""
        return self.log_goodput - self.current[:, None]


def look(
    plane: Plane,
    survival: LiveSurvival,
    residuals: StepTimeResiduals,
    in_force: tuple[int, ...],
    live: IntArray,
    excluded: frozenset[int] = frozenset(),
) -> Outlook:
    """The outlook on all cells against the table in force.

    live: int64[R], batch size - 1 of the sizes whose doubt is wanted. excluded: lengths in
    quarantine.
    """
    gains = survival.gains
    tokens = 1.0 + np.concatenate(([0.0], np.cumsum(gains)))
    lengths = np.asarray(plane.lengths)
    log_tokens = np.log(tokens)[lengths]
    log_time = _rounded(plane.log_time + residuals.log_ratio())
    believed = _rounded(log_tokens)[None, :] - log_time
    allowed = _allowed(plane, lengths, excluded)
    columns = plane.columns_of(in_force)
    rows = np.arange(plane.max_batch_size)
    current = np.where(columns >= 0, believed[rows, columns], np.nan)
    slopes = token_slopes(gains, tokens, lengths)
    variance = slopes @ survival.log_acceptance_variance
    own = columns[live]
    sd = np.zeros(believed.shape)
    sd[live] = np.sqrt(variance[own] + residuals.contrast_variance(live, own))
    return Outlook(
        np.where(allowed, believed, -np.inf),
        log_time,
        tokens,
        _rounded(sd),
        columns,
        current,
        slopes,
        live,
    )


def careful(outlook: Outlook, residuals: StepTimeResiduals) -> Outlook:
    """The outlook for a swap: that the length in force is slower than profiled speaks for no
    length that was not itself measured against it.

    Steps become slow for all lengths alike, while requests pour in or a neighbour is busy; what
    was seen of one length cannot tell that from an error of its own. A probe can. On an H200,
    while 128 requests poured in, K = 2 seemed a tenth too slow, and slower K = 4 was taken.
    """
    known = np.flatnonzero(outlook.columns >= 0)
    own = outlook.columns[known]
    ratio = residuals.log_ratio()[known]
    better = ratio[np.arange(known.size), own][:, None] - ratio
    hoped = np.where(residuals.compared(known, own), 0.0, np.maximum(better - _BELIEVED, 0.0))
    log_goodput, log_time = outlook.log_goodput.copy(), outlook.log_time.copy()
    log_goodput[known] -= hoped
    log_time[known] += hoped
    return replace(outlook, log_goodput=_rounded(log_goodput), log_time=_rounded(log_time))


def _allowed(plane: Plane, lengths: IntArray, excluded: frozenset[int]) -> Bools:
    """Usable and not in quarantine, which never leaves a batch size without a length."""
    if not excluded:
        return plane.usable
    allowed: Bools = plane.usable & ~np.isin(lengths, list(excluded))[None, :]
    nothing: Bools = np.logical_not(np.logical_or.reduce(allowed, axis=1))
    allowed[nothing] = plane.usable[nothing]
    return allowed


def token_slopes(gains: FloatArray, tokens: FloatArray, lengths: IntArray) -> FloatArray:
    """How log E(K') - log E(K) varies with the conditional acceptances, squared: its variance
    is this times theirs, which are independent given the counts; float64[L, L, positions].

    d log E(K) / d log c_i = (sum of p_j S_j over i <= j <= K) / E(K).
    """
    reach = np.arange(1, gains.size + 1)[None, :] <= lengths[:, None]
    summed = np.cumsum((gains[None, :] * reach)[:, ::-1], axis=1)[:, ::-1]
    slope = summed / tokens[lengths][:, None]
    return (slope[:, None, :] - slope[None, :, :]) ** 2


def _rounded(values: FloatArray) -> FloatArray:
    return np.rint(values / _GRAIN) * _GRAIN
