"""From engine steps to one observation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tabletune.core.controller.observation import (
    BatchTotals,
    Bools,
    CellTimes,
    Ints,
    LiveObservation,
    Stall,
    StepColumns,
)
from tabletune.core.words import FloatArray

ExpectedStepTime = Callable[[int, int], float | None]
"""(batch size, verified length) -> expected seconds of a steady step; None: not known."""

_FAR_SPREADS = 4.0  # a step is pulled in to the middle +- so many robust standard deviations,
_FAR_SHARE = 0.10  # and at least this share of the middle
_MOST_STALLS = 16  # kept per observation


def summarise(
    columns: StepColumns,
    from_s: float,
    to_s: float,
    *,
    expected_step_time_s: ExpectedStepTime | None = None,
    full_drafts: bool = True,
    stall_factor: float = 3.0,
    stall_floor_s: float = 0.01,
) -> LiveObservation:
    """Aggregate the steps of one tick.

    expected_step_time_s: for stalls: steps above `stall_factor` times the expected time and
        at least `stall_floor_s` above it; None: no stalls are told.
    full_drafts: steady steps need a full draft of every request (model drafters); False for
        n-gram and suffix drafters, whose steps differ in work by nature.
    """
    longest = int(columns.drafted_through.shape[1])
    if len(columns) == 0:
        return LiveObservation.nothing(from_s, to_s, longest)
    steady = steady_steps(columns, full_drafts)
    known = columns.verified_length >= 1
    requests = columns.request_steps[known]
    reach = columns.verified_length[known][:, None] >= np.arange(1, longest + 1)
    offered = (requests[:, None] * reach).sum(axis=0)
    # A request whose drafts were invalid may be counted as drafted but not as offered.
    drafted = np.minimum(columns.drafted_through[known].sum(axis=0), offered)
    accepted = np.minimum(columns.accepted_through[known].sum(axis=0), drafted)
    return LiveObservation(
        from_s=float(from_s),
        to_s=float(to_s),
        steps=len(columns),
        last_batch_size=int(columns.batch_size[-1]),
        waiting_requests=int(columns.waiting_requests[-1]),
        cells=_cells(columns, steady),
        batches=_batches(columns, steady),
        request_steps=int(requests.sum()),
        offered_through=tuple(offered.tolist()),
        drafted_through=tuple(drafted.tolist()),
        accepted_through=tuple(accepted.tolist()),
        stalls=_stalls(columns, expected_step_time_s, stall_factor, stall_floor_s),
    )


def steady_steps(columns: StepColumns, full_drafts: bool = True) -> Bools:
    """Which steps tell the step time of their cell (batch size, verified length): bool[n].

    As in the profile: what they verify and what they draft has the same length, every draft is
    full, no request prefills, and none begins to in the next step. Taking requests in and
    launching their prefill fall into the interval of the step before: on an H200 that made
    steps of 63 requests last 14 ms instead of 7 in every second of a closed loop of 64, by the
    same 7 ms at every length, which as a ratio speaks for the longest.
    """
    steady: Bools = (
        calm_steps(columns)
        & (columns.verified_length == columns.draft_length)
        & columns.undisturbed
        & np.isfinite(columns.step_time_s)
        & (columns.step_time_s > 0)
    )
    if full_drafts:
        steady &= (columns.verified_length == 0) | (columns.drafted_requests == columns.batch_size)
    return steady


def calm_steps(columns: StepColumns) -> Bools:
    """Which steps neither hold a prefill nor come right before one: bool[n].

    What follows the newest step is not known; it counts as calm.
    """
    decoding: Bools = columns.prefill_requests == 0
    calm = decoding.copy()
    calm[:-1] &= decoding[1:]
    return calm


def _cells(columns: StepColumns, steady: Bools) -> tuple[CellTimes, ...]:
    if not steady.any():
        return ()
    times = columns.step_time_s[steady]
    keys, groups = _grouped(columns.batch_size[steady] * 4096 + columns.verified_length[steady])
    return tuple(
        _cell(key // 4096, key % 4096, times[rows]) for key, rows in zip(keys, groups, strict=True)
    )


def _grouped(keys: Ints) -> tuple[list[int], list[Ints]]:
    """The distinct keys, ascending, and the rows of each in order."""
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    return distinct.tolist(), np.split(order, starts[1:])


def _cell(batch_size: int, draft_length: int, times_s: FloatArray) -> CellTimes:
    middle = float(np.median(times_s))
    spread = 1.4826 * float(np.median(np.abs(times_s - middle)))
    reach = max(_FAR_SPREADS * spread, _FAR_SHARE * middle)
    near = np.clip(times_s, middle - reach, middle + reach)
    mean = float(near.mean())
    sd = float(near.std()) / mean if times_s.size > 1 else 0.0
    return CellTimes(batch_size, draft_length, int(times_s.size), mean, sd)


def _batches(columns: StepColumns, steady: Bools) -> tuple[BatchTotals, ...]:
    counted = columns.undisturbed & np.isfinite(columns.step_time_s)
    size = int(columns.batch_size.max()) + 1
    sizes = columns.batch_size[counted]
    decoding = columns.prefill_requests == 0

    def sums(values: Ints | FloatArray | Bools) -> list[float]:
        return np.bincount(sizes, values[counted], size).tolist()

    steps = np.bincount(sizes, minlength=size).tolist()
    seconds, tokens = sums(columns.step_time_s), sums(columns.output_tok)
    clean = sums(steady)
    decode_s = sums(np.where(decoding, columns.step_time_s, 0.0))
    decode_tok = sums(np.where(decoding, columns.output_tok, 0))
    return tuple(
        BatchTotals(
            b, steps[b], seconds[b], int(tokens[b]), int(clean[b]), decode_s[b], int(decode_tok[b])
        )
        for b in range(1, size)
        if steps[b]
    )


def _stalls(
    columns: StepColumns, expected: ExpectedStepTime | None, factor: float, floor_s: float
) -> tuple[Stall, ...]:
    if expected is None:
        return ()
    stalls: list[Stall] = []
    # Steps with prefills, and right before one, take as long as the prompts are.
    candidates = np.flatnonzero(
        columns.undisturbed & calm_steps(columns) & (columns.step_time_s > floor_s)
    )
    for i in candidates.tolist():
        cell = int(columns.batch_size[i]), int(columns.verified_length[i])
        usual_s = expected(*cell) if cell[1] >= 0 else None
        seconds = float(columns.step_time_s[i])
        if usual_s and seconds > factor * usual_s and seconds > usual_s + floor_s:
            stalls.append(Stall(*cell, seconds))
    return tuple(stalls[:_MOST_STALLS])
