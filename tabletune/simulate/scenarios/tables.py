"""Tables that a scenario starts with, and step times as somebody believes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tabletune.core.errors import NotCoveredError
from tabletune.core.surface import StepTimes
from tabletune.core.table import BuildOptions, build_table
from tabletune.core.words import FloatArray
from tabletune.simulate.step_cost import StepCost

BUILD = BuildOptions(max_merge_loss=0.01)
"""How a tuned table is built here: the paper's rules, but no range is merged at any price."""


@dataclass(frozen=True, eq=False)
class GridStepTimes:
    """`StepTimes` of a dense float64[B+1, K+1] in seconds; NaN is not covered.

    >>> GridStepTimes(np.array([[np.nan, np.nan], [0.004, np.nan]])).draft_lengths
    (0,)
    """

    seconds: FloatArray

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        return tuple(np.flatnonzero(np.isfinite(self.seconds).any(axis=0)).tolist())

    def covered(self, batch_size: int, draft_length: int) -> bool:
        rows, columns = self.seconds.shape
        inside = 1 <= batch_size < rows and 0 <= draft_length < columns
        return inside and bool(np.isfinite(self.seconds[batch_size, draft_length]))

    def step_time_s(self, batch_size: int, draft_length: int) -> float:
        """Raises NotCoveredError where `covered` is False."""
        if not self.covered(batch_size, draft_length):
            raise NotCoveredError(batch_size, draft_length, "the grid has no time there")
        return float(self.seconds[batch_size, draft_length])


def tuned_lengths(
    surface: StepTimes, expected_tokens: FloatArray, max_batch_size: int
) -> tuple[int, ...]:
    """The draft length of every batch size, [b-1], as the table builder chooses it."""
    return build_table(surface, expected_tokens, max_batch_size, BUILD).draft_lengths


def random_lengths(
    max_batch_size: int, longest: int, rng: np.random.Generator, most_ranges: int = 6
) -> tuple[int, ...]:
    """A table that nobody tuned: 1 to `most_ranges` ranges with random edges (evenly in the
    logarithm of the batch size) and random lengths from 0 to `longest`; neighbours differ."""
    count = int(rng.integers(1, most_ranges + 1))
    edges = np.unique(np.exp(rng.uniform(0, np.log(max_batch_size), count - 1)).astype(np.int64))
    lengths: list[int] = []
    length = -1
    for last in [*edges.tolist(), max_batch_size]:
        length = int(rng.choice([k for k in range(longest + 1) if k != length]))
        lengths += [length] * (last - len(lengths))
    return tuple(lengths)


GRID = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Batch sizes of the cells of a profile."""


def wrong_cells(
    shape: tuple[int, int], share: float, error: float, rng: np.random.Generator
) -> FloatArray:
    """Factors for `believed`, float64 of `shape`: a random `share` of the profile's cells is off
    by a factor uniform in 1-error..1+error; between cells it is interpolated in the batch size,
    as whoever reads the profile does."""
    nodes = np.array([b for b in GRID if b < shape[0] - 1] + [shape[0] - 1])
    wrong = rng.random((nodes.size, shape[1])) < share
    factors = np.where(wrong, rng.uniform(1 - error, 1 + error, wrong.shape), 1.0)
    every = np.arange(shape[0])
    return np.stack([np.interp(every, nodes, column) for column in factors.T], axis=1)


def believed(cost: StepCost, factors: FloatArray) -> GridStepTimes:
    """What a profile says that is wrong by `factors`, float64[B+1, K+1], of the true times."""
    return GridStepTimes(cost.step_time_s * factors)
