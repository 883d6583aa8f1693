"""From engine steps to one observation."""

from __future__ import annotations

import numpy as np

from tabletune.core.controller.drift import level_times_s
from tabletune.core.controller.in_force import ExpectedStepTime, length_in_force
from tabletune.core.controller.joining import joining_price, pulled_in
from tabletune.core.controller.observation import (
    BatchTotals,
    Bools,
    CellTimes,
    Ints,
    LiveObservation,
    Stall,
    StepColumns,
)
from tabletune.core.controller.stretch import stretch_sd
from tabletune.core.words import FloatArray

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
        at least `stall_floor_s` above it; and for what joining requests cost the step before.
        None: no stalls are told, and steps before a prefill tell nothing.
    full_drafts: steady steps need a full draft of every request (model drafters); False for
        n-gram and suffix drafters, whose steps differ in work by nature.
    """
    longest = int(columns.drafted_through.shape[1])
    if len(columns) == 0:
        return LiveObservation.nothing(from_s, to_s, longest)
    plain = _plain_steps(columns, full_drafts)
    calm = calm_steps(columns)
    steady = plain & calm
    known = columns.verified_length >= 1
    requests = columns.request_steps[known]
    reach = columns.verified_length[known][:, None] >= np.arange(1, longest + 1)
    offered = (requests[:, None] * reach).sum(axis=0)
    # A request whose drafts were invalid may be counted as drafted but not as offered.
    drafted = np.minimum(columns.drafted_through[known].sum(axis=0), offered)
    accepted = np.minimum(columns.accepted_through[known].sum(axis=0), drafted)
    cells, apart = _cells(columns, steady, plain, expected_step_time_s)
    return LiveObservation(
        from_s=float(from_s),
        to_s=float(to_s),
        steps=len(columns),
        last_batch_size=int(columns.batch_size[-1]),
        waiting_requests=int(columns.waiting_requests[-1]),
        cells=cells,
        batches=_batches(columns, steady),
        request_steps=int(requests.sum()),
        offered_through=tuple(offered.tolist()),
        drafted_through=tuple(drafted.tolist()),
        accepted_through=tuple(accepted.tolist()),
        stalls=_stalls(columns, calm, expected_step_time_s, stall_factor, stall_floor_s),
        stretch_sd=apart,
    )


def calm_steps(columns: StepColumns) -> Bools:
    """Which steps neither hold a prefill nor come right before one: bool[n].

    What follows the newest step is not known; it counts as calm.
    """
    decoding: Bools = columns.prefill_requests == 0
    calm = decoding.copy()
    calm[:-1] &= decoding[1:]
    return calm


def _plain_steps(columns: StepColumns, full_drafts: bool) -> Bools:
    """Which steps would tell the step time of their cell (batch size, verified length) if no
    request joined in the next one: bool[n]. Those that are calm besides are the steady ones.

    As in the profile: what they verify and what they draft has the same length, every draft is
    full, and no request prefills.
    """
    plain: Bools = (
        (columns.prefill_requests == 0)
        & (columns.verified_length == columns.draft_length)
        & columns.undisturbed
        & np.isfinite(columns.step_time_s)
        & (columns.step_time_s > 0)
    )
    if full_drafts:
        plain &= (columns.verified_length == 0) | (columns.drafted_requests == columns.batch_size)
    return plain


def _cells(
    columns: StepColumns, steady: Bools, plain: Bools, expected: ExpectedStepTime | None
) -> tuple[tuple[CellTimes, ...], float | None]:
    """The cells, and how far stretches of steps lie apart (see stretch.py)."""
    joining, price, times_s = plain & ~steady, None, columns.step_time_s
    in_force, apart = length_in_force(columns, steady, expected), None
    if in_force is not None:
        price = joining_price(columns, steady, joining, in_force)
        times_s = level_times_s(columns, steady, in_force)
        apart = stretch_sd(times_s, steady, in_force)
    told = plain if price is not None else steady
    if not told.any():
        return (), apart
    rows = np.flatnonzero(told)
    keys, groups = _grouped(columns.batch_size[rows] * 4096 + columns.verified_length[rows])
    cells: list[CellTimes] = []
    for key, group in zip(keys, groups, strict=True):
        cell, at = (key // 4096, key % 4096), rows[group]
        calm = _cell(*cell, times_s[at[steady[at]]])
        if price is not None:
            calm = price.added(calm, times_s[at[joining[at]]])
        if calm.count:
            cells.append(calm)
    return tuple(cells), apart


def _grouped(keys: Ints) -> tuple[list[int], list[Ints]]:
    """The distinct keys, ascending, and the rows of each in order."""
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    return distinct.tolist(), np.split(order, starts[1:])


def _cell(batch_size: int, draft_length: int, times_s: FloatArray) -> CellTimes:
    if times_s.size == 0:
        return CellTimes(batch_size, draft_length, 0, 0.0, 0.0)
    near = pulled_in(times_s)
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
    columns: StepColumns,
    calm: Bools,
    expected: ExpectedStepTime | None,
    factor: float,
    floor_s: float,
) -> tuple[Stall, ...]:
    if expected is None:
        return ()
    stalls: list[Stall] = []
    # Steps with prefills, and right before one, take as long as the prompts are.
    candidates = np.flatnonzero(columns.undisturbed & calm & (columns.step_time_s > floor_s))
    for i in candidates.tolist():
        cell = int(columns.batch_size[i]), int(columns.verified_length[i])
        usual_s = expected(*cell) if cell[1] >= 0 else None
        seconds = float(columns.step_time_s[i])
        if usual_s and seconds > factor * usual_s and seconds > usual_s + floor_s:
            stalls.append(Stall(*cell, seconds))
    return tuple(stalls[:_MOST_STALLS])
