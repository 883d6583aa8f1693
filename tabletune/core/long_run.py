"""Step times brought to the tokens that a drafter schedules in the long run.

An n-gram or suffix drafter proposes what the text repeats, and a text repeats more the longer it
is. So a profile and an acceptance prior that saw outputs of other lengths speak of different
drafts: with SmolLM2 on two processor cores profiled steps held 0.5 guesses of each request and
position where the prior has 0.3, and their step times were 15 to 20 % too high for its expected
tokens. The prior has seen many more steps. What a token more costs is seen between the draft
lengths of one batch size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tabletune.core.step_time import StepTimeEstimate
from tabletune.core.words import ArrayLike, Cell, FloatArray

#: A step time is changed by at most this share: a few cells give a rough price of a token.
MOST_CHANGE = 0.25


def long_run_tok(batch_size: int, proposal_rate: ArrayLike) -> FloatArray:
    """Tokens of a step at K = 0 … K_max, float64[K_max + 1]: one of each request, and the guesses
    that its drafter proposes. proposal_rate: float64[K_max], of at least i guesses.

    >>> long_run_tok(8, [0.7, 0.5]).tolist()
    [8.0, 13.6, 17.6]
    """
    rates = np.asarray(proposal_rate, dtype=np.float64)
    return batch_size * (1.0 + np.concatenate(([0.0], np.cumsum(rates))))


def at_long_run(
    cells: Mapping[Cell, StepTimeEstimate],
    scheduled_tok: Mapping[Cell, float],
    proposal_rate: ArrayLike,
) -> dict[Cell, StepTimeEstimate]:
    """The cells at `long_run_tok` tokens a step.

    scheduled_tok: mean tokens of the steps that each cell was measured from.

    At each batch size a line through its cells (step time over tokens, least squares, never
    falling) gives the price of a token. Batch sizes with a single cell, and lengths beyond the
    proposal rate, stay as they are.
    """
    rows: dict[int, list[int]] = {}
    for batch_size, length in sorted(cells):
        rows.setdefault(batch_size, []).append(length)
    moved = dict(cells)
    for batch_size, lengths in rows.items():
        wanted = long_run_tok(batch_size, proposal_rate)
        tokens = np.array([scheduled_tok[batch_size, k] for k in lengths])
        times_s = np.array([cells[batch_size, k].step_time_s for k in lengths])
        price_s = _price_s(tokens, times_s)
        for length, seen, time_s in zip(lengths, tokens.tolist(), times_s.tolist(), strict=True):
            if length >= wanted.size or time_s <= 0:
                continue
            change = price_s * (float(wanted[length]) - seen) / time_s
            factor = 1.0 + min(max(change, -MOST_CHANGE), MOST_CHANGE)
            moved[batch_size, length] = _scaled(cells[batch_size, length], factor)
    return moved


def _price_s(tokens: FloatArray, times_s: FloatArray) -> float:
    """Seconds a token, from the cells of one batch size; 0 where they do not tell."""
    apart = tokens - tokens.mean()
    spread = float(apart @ apart)
    if tokens.size < 2 or spread <= 1e-9 * float(tokens @ tokens):
        return 0.0
    return max(0.0, float(apart @ times_s) / spread)


def _scaled(one: StepTimeEstimate, factor: float) -> StepTimeEstimate:
    return replace(
        one,
        step_time_s=one.step_time_s * factor,
        low_s=one.low_s * factor,
        high_s=one.high_s * factor,
    )
