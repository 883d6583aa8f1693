"""Whether another table is worth a swap, and which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tabletune.core.controller.outlook import Outlook
from tabletune.core.controller.plane import Plane
from tabletune.core.controller.promoted import Promoted
from tabletune.core.errors import NoTableError
from tabletune.core.table import BuildOptions, build_table
from tabletune.core.words import FloatArray

_NEAR_TIE = 0.002  # the length in force stays while it loses at most this at a batch size


@dataclass(frozen=True)
class Candidate:
    """lengths: [b-1] for batch size b. gain: share of throughput over the live batch sizes.
    doubt: its standard deviation."""

    lengths: tuple[int, ...]
    gain: float
    doubt: float


@dataclass(frozen=True)
class _Surface:
    """Corrected step times for the table builder, the length in force a little favoured."""

    plane: Plane
    time_s: FloatArray
    usable: np.ndarray

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        return self.plane.lengths

    def covered(self, batch_size: int, draft_length: int) -> bool:
        return bool(self.usable[batch_size - 1, self.plane.lengths.index(draft_length)])

    def step_time_s(self, batch_size: int, draft_length: int) -> float:
        return float(self.time_s[batch_size - 1, self.plane.lengths.index(draft_length)])

    def dense_step_time_s(self) -> FloatArray:
        return np.where(self.usable, self.time_s, np.nan)


def propose(
    promoted: Promoted,
    plane: Plane,
    outlook: Outlook,
    in_force: tuple[int, ...],
    weights: FloatArray,
    least_gain: float,
    certainty_z: float,
    most_doubt: float,
) -> Candidate | None:
    """The best table, if it gains more than `least_gain` and `certainty_z` times its doubt,
    of which at most `most_doubt` counts; else None.

    weights: float64[B], share of the live time at each batch size. Batch sizes that are not
    live never ask for a swap, but change along with one.
    """
    unusable = _unusable(outlook)
    best = np.max(outlook.log_goodput, axis=1)
    hope = np.where(unusable, 1.0, best - outlook.current)
    if float(weights @ np.expm1(np.where(hope > _NEAR_TIE, hope, 0.0))) <= least_gain:
        return None
    lengths = _built(promoted, plane, outlook, unusable)
    if lengths is None or lengths == in_force:
        return None
    columns = plane.columns_of(lengths)
    rows = np.arange(len(lengths))
    changed = columns != outlook.columns
    gain = np.where(unusable, 1.0, outlook.log_goodput[rows, columns] - outlook.current)
    total = float(weights @ np.where(changed, np.expm1(gain), 0.0))
    sd = np.where(unusable, 0.0, outlook.contrast_sd[rows, columns])
    doubt = float(weights @ np.where(changed, sd, 0.0))
    needed = least_gain + min(certainty_z * doubt, most_doubt)
    return Candidate(lengths, total, doubt) if total > needed else None


def _unusable(outlook: Outlook) -> np.ndarray:
    """bool[B]: where the length in force may not be used, or nothing is known of it."""
    rows = np.arange(outlook.columns.size)
    believed = outlook.log_goodput[rows, outlook.columns]
    return (outlook.columns < 0) | ~np.isfinite(believed) | np.isnan(outlook.current)


def _built(
    promoted: Promoted, plane: Plane, outlook: Outlook, unusable: np.ndarray
) -> tuple[int, ...] | None:
    usable = np.isfinite(outlook.log_goodput)
    time_s = np.exp(outlook.log_time)
    kept = ~unusable
    if promoted.max_tpot_s is not None:
        # No favour for a length that breaks a limit which another one keeps.
        fast = np.exp(-outlook.log_goodput) <= promoted.max_tpot_s
        own = fast[np.arange(kept.size), outlook.columns]
        kept &= own | ~fast.any(axis=1)
    rows = np.flatnonzero(kept)
    time_s[rows, outlook.columns[rows]] *= 1.0 - _NEAR_TIE
    options = BuildOptions(
        near_tie=0.0,
        narrow_share=0.0,
        max_tpot_s=promoted.max_tpot_s,
        forbidden_transitions=promoted.forbidden_transitions,
    )
    try:
        built = build_table(
            _Surface(plane, time_s, usable), outlook.expected_tokens, kept.size, options
        )
    except NoTableError:
        return None
    return built.draft_lengths
