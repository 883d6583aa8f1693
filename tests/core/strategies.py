"""Generators of counts, survivals, step times and staircases for the property tests."""

from collections.abc import Callable, Sequence

import hypothesis.strategies as st
import numpy as np

from tabletune.core.counts import SurvivalCounts
from tabletune.core.step_time import StepTimeEstimate
from tabletune.core.surface import StepTimeSurface


@st.composite
def draft_counts(draw: st.DrawFn, max_positions: int = 6) -> SurvivalCounts:
    """Counts as an engine could have made them: from single request-steps."""
    size = draw(st.integers(1, max_positions))
    steps: list[tuple[int, int, int]] = []
    for _ in range(draw(st.integers(0, 30))):
        length = draw(st.integers(0, size))
        guesses = draw(st.integers(0, length))
        steps.append((length, guesses, draw(st.integers(0, guesses))))
    return SurvivalCounts.from_drafts(steps, size)


@st.composite
def survivals(draw: st.DrawFn, size: int | None = None) -> np.ndarray:
    """Non-increasing sequences in [0, 1]."""
    count = size or draw(st.integers(1, 6))
    factors = draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    return np.cumprod(factors)


def exact(step_time_s: float, halfwidth: float = 0.0) -> StepTimeEstimate:
    """An estimate without doubt."""
    low, high = step_time_s * (1 - halfwidth), step_time_s * (1 + halfwidth)
    return StepTimeEstimate(step_time_s, low, high, 80, 0)


def stairs(sizes: Sequence[int]) -> Callable[[int, int], int | None]:
    """Padding to the next captured size; none above the largest."""

    def padded(batch_size: int, draft_length: int) -> int | None:
        tokens = batch_size * (draft_length + 1)
        return next((size for size in sorted(sizes) if size >= tokens), None)

    return padded


@st.composite
def surfaces(draw: st.DrawFn, max_batch_size: int | None = None) -> StepTimeSurface:
    """Dense surfaces (every batch size measured), with noise that makes lengths cross often."""
    size = max_batch_size or draw(st.integers(1, 60))
    lengths = sorted(draw(st.sets(st.integers(0, 5), min_size=1, max_size=4)))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    cells = {}
    for k in lengths:
        base, slope = rng.uniform(3e-3, 5e-3), rng.uniform(1e-6, 4e-5) * (k + 1)
        for b in range(1, size + 1):
            cells[b, k] = exact(base + slope * b + rng.uniform(0, 4e-4))
    return StepTimeSurface.from_cells(cells)
