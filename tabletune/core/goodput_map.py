"""Predicted goodput over the whole b × K plane, and which of its cells a table may use."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tabletune.core.errors import CoreError, NoTableError
from tabletune.core.surface import DenseStepTimes, StepTimes
from tabletune.core.words import ArrayLike, FloatArray

BoolArray: TypeAlias = npt.NDArray[np.bool_]

ExpectedTokens: TypeAlias = ArrayLike | Callable[[int, int], float]
"""E as float64[K+1], or (batch size, draft length) -> E where it depends on the batch size."""

Envelope: TypeAlias = Callable[[int, int], bool]
"""(batch size, draft length) -> whether a table may use it."""


@dataclass(frozen=True)
class GoodputMap:
    """lengths: the L draft lengths, ascending.
    goodput_tok_s: float64[B, L], [b-1, j] for batch size b and lengths[j]; 0 where not covered.
    usable: bool[B, L]; every row has at least one True.
    """

    lengths: tuple[int, ...]
    goodput_tok_s: FloatArray
    usable: BoolArray

    @property
    def max_batch_size(self) -> int:
        return int(self.goodput_tok_s.shape[0])

    @property
    def batch_sizes(self) -> FloatArray:
        """1..B as a float64[B, 1] column."""
        return np.arange(1.0, self.max_batch_size + 1)[:, None]

    def best_tok_s(self) -> FloatArray:
        """float64[B]: the highest predicted goodput among usable lengths."""
        return np.where(self.usable, self.goodput_tok_s, 0.0).max(axis=1)

    def loss(self) -> FloatArray:
        """float64[B, L]: 1 - goodput / best; infinite where not usable."""
        share = 1.0 - self.goodput_tok_s / self.best_tok_s()[:, None]
        return np.where(self.usable, np.maximum(share, 0.0), np.inf)

    def within_tpot(self, max_tpot_s: float) -> BoolArray:
        """bool[B, L]: usable and b / goodput = T / E, the time per output token, in the limit."""
        fast = self.goodput_tok_s * max_tpot_s >= self.batch_sizes
        return np.logical_and(self.usable, fast)


def goodput_map(
    surface: StepTimes,
    expected_tokens: ExpectedTokens,
    max_batch_size: int,
    allowed: Collection[int] | None = None,
    envelope: Envelope | None = None,
) -> GoodputMap:
    """Predict the goodput b·E/T of every covered cell up to `max_batch_size`.

    Usable are the covered cells whose length is `allowed` (None: all), inside the envelope
    (None: everywhere) and has expected tokens. NoTableError where a batch size has none.
    """
    if max_batch_size < 1:
        raise CoreError("max_batch_size", "at least 1", max_batch_size, "pass max_num_seqs")
    tokens_at, longest = tokens_function(expected_tokens)
    lengths = tuple(k for k in surface.draft_lengths if longest is None or k <= longest)
    times_s = _step_times_s(surface, lengths, max_batch_size)
    covered = ~np.isnan(times_s)
    wrong = times_s[covered & ~(np.isfinite(times_s) & (times_s > 0))]
    if wrong.size:
        raise CoreError(
            "step_time_s", "a finite time > 0", float(wrong[0]), "measure the cell again"
        )
    tokens = np.ones(times_s.shape)
    if not callable(expected_tokens):
        tokens *= [tokens_at(1, k) for k in lengths]
    wanted = np.array([allowed is None or k in allowed for k in lengths], dtype=np.bool_)
    usable = np.logical_and(covered, wanted)
    if callable(expected_tokens) or envelope is not None:
        for i, j in np.argwhere(covered).tolist():
            b, k = i + 1, lengths[j]
            if callable(expected_tokens):
                tokens[i, j] = tokens_at(b, k)
            usable[i, j] &= envelope is None or envelope(b, k)
    batch_sizes = np.arange(1.0, max_batch_size + 1)[:, None]
    goodput = np.where(covered, batch_sizes * tokens / times_s, 0.0)
    empty = (np.flatnonzero(~usable.any(axis=1)) + 1).tolist() if lengths else [1]
    if empty:
        raise NoTableError(
            f"no covered and allowed draft length at {len(empty)} batch sizes",
            empty[:5],
            "measure up to the maximum batch size, allow more lengths or capture more graphs",
        )
    return GoodputMap(lengths, goodput, usable)


def _step_times_s(surface: StepTimes, lengths: tuple[int, ...], max_batch_size: int) -> FloatArray:
    """float64[B, L]; NaN where not covered."""
    if isinstance(surface, DenseStepTimes):
        dense = surface.dense_step_time_s()
        if dense.shape[0] >= max_batch_size:
            columns = [surface.draft_lengths.index(k) for k in lengths]
            return np.array(dense[:max_batch_size, columns])
    times_s = np.full((max_batch_size, len(lengths)), np.nan)
    for b in range(1, max_batch_size + 1):
        for j, k in enumerate(lengths):
            if surface.covered(b, k):
                time_s = surface.step_time_s(b, k)
                # NaN stands for what is not covered from here on: a covered cell must not have it.
                times_s[b - 1, j] = -np.inf if np.isnan(time_s) else time_s
    return times_s


def tokens_function(
    expected_tokens: ExpectedTokens,
) -> tuple[Callable[[int, int], float], int | None]:
    """E as a function, and the longest draft length that it knows (None: any)."""
    if callable(expected_tokens):
        return expected_tokens, None
    row = np.array(expected_tokens, dtype=np.float64)
    if row.ndim != 1 or row.size == 0 or not np.all(np.isfinite(row)) or row[0] != 1.0:
        raise CoreError(
            "expected_tokens",
            "float64[K+1] that starts with E(0) = 1",
            row.tolist(),
            "compute it with `expected_tokens`",
        )
    values: list[float] = row.tolist()
    return (lambda _b, k: values[k]), row.size - 1
