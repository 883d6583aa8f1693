"""What a simulated step takes: from a profile, plus prefills, context, noise and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tabletune.core.surface import StepTimes
from tabletune.core.words import Cell, FloatArray
from tabletune.simulate.errors import SimulationError


@dataclass(frozen=True)
class Noise:
    """Multiplies step times: lognormal with mean 1 and standard deviation `relative_sd`.

    outlier_rate: share of steps that take `outlier_factor` times as long besides.
    host_sd, host_steps: a slow drift besides, of the host's speed: standard deviation of its
        logarithm, and the steps after which it is forgotten to 1/e. host_share: by draft length,
        how much of it a step feels, the last for all longer ones; empty: all of it. On an H200
        steps with few drafts wait for the host and those with many for the GPU, and over minutes
        the former drifted by 6 to 9 %, the latter by 3 %.
    """

    relative_sd: float = 0.0
    outlier_rate: float = 0.0
    outlier_factor: float = 5.0
    host_sd: float = 0.0
    host_steps: float = 1000.0
    host_share: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not (self.host_sd >= 0 and self.host_steps > 0):
            found = (self.host_sd, self.host_steps)
            raise SimulationError("host_sd, host_steps", "at least 0, above 0", found, "see Noise")

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """float64[count], factors."""
        sigma = np.sqrt(np.log1p(self.relative_sd**2))
        factors = np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2)
        # Drawn at any rate, so that the other numbers stay the same when it changes.
        outliers = rng.random(count) < self.outlier_rate
        return np.where(outliers, factors * self.outlier_factor, factors)

    def drift(self, rng: np.random.Generator, before: float, count: int) -> FloatArray:
        """The next `count` values of the host's drift, log factors, float64[count]; a first-order
        autoregression. before: the value of the step before."""
        keep = float(np.exp(-1.0 / self.host_steps))
        pushes = self.host_sd * np.sqrt(1.0 - keep**2) * rng.standard_normal(count)
        values = np.empty(count)
        for i, push in enumerate(pushes.tolist()):
            before = keep * before + push
            values[i] = before
        return values

    def mean_one(self, draft_length: int) -> float:
        """What brings the mean of exp(felt · drift) to 1, as a logarithm."""
        return -0.5 * (self.felt(draft_length) * self.host_sd) ** 2

    def felt(self, draft_length: int) -> float:
        """The share of the host's drift that a step of this draft length feels."""
        if not self.host_share:
            return 1.0
        return self.host_share[min(draft_length, len(self.host_share) - 1)]


@dataclass(frozen=True, eq=False)
class StepCost:
    """The true step times of a simulated engine.

    step_time_s: float64[B+1, K+1]; [b, k] is a step of b decoding requests that verifies k
        guesses of each, context as profiled. Row 0 is unused; NaN where nothing is known.
    prefill_s_per_tok: marginal seconds per prompt token in a step. A step without decodes
        takes [1, 0] besides.
    prefill_step_s: added to any step that has prompt tokens (mixed steps run without a full
        CUDA graph).
    context_s_per_tok: seconds per token of context in the batch beyond `profiled_context_tok`
        per decoding request (below it: less than the profile).
    by_drafted: steps verify the guesses that were proposed, not K for everyone: the time is
        interpolated at the mean draft of the step. As in engines that schedule only what an
        n-gram drafter found; otherwise the full step time of K is charged, as the paper does.
    """

    step_time_s: FloatArray
    prefill_s_per_tok: float = 0.0
    prefill_step_s: float = 0.0
    context_s_per_tok: float = 0.0
    profiled_context_tok: float = 0.0
    noise: Noise = Noise()
    by_drafted: bool = False

    def __post_init__(self) -> None:
        known = self.step_time_s[np.isfinite(self.step_time_s)]
        if self.step_time_s.ndim != 2 or known.size == 0 or np.any(known <= 0):
            raise SimulationError(
                "step_time_s",
                "float64[B+1, K+1], positive where known",
                self.step_time_s.shape,
                "build it with `step_times`",
            )

    @property
    def max_batch_size(self) -> int:
        return int(self.step_time_s.shape[0]) - 1

    @property
    def max_draft_length(self) -> int:
        return int(self.step_time_s.shape[1]) - 1

    def misprofiled(self, factors: FloatArray) -> StepCost:
        """The same engine, but slower than profiled by `factors` (float64[B+1, K+1]).

        Whoever trusts the profile then believes `factors` times too little.
        """
        return replace(self, step_time_s=self.step_time_s * factors)

    def known(self, batch_size: int, draft_length: int) -> bool:
        inside = 1 <= batch_size <= self.max_batch_size
        return (
            inside
            and 0 <= draft_length <= self.max_draft_length
            and bool(np.isfinite(self.step_time_s[batch_size, draft_length]))
        )


def step_times(
    surface: StepTimes, max_batch_size: int, uncovered_factor: float | None = None
) -> FloatArray:
    """The dense float64[B+1, K+1] of a surface, for `StepCost`.

    uncovered_factor: what is not covered takes so many times as long as the nearest covered
        batch size at the same draft length (a step without CUDA graph takes three to four
        times as long); None: NaN, and a simulation that gets there fails.
    """
    longest = max(surface.draft_lengths)
    times = np.full((max_batch_size + 1, longest + 1), np.nan)
    for k in surface.draft_lengths:
        for b in range(1, max_batch_size + 1):
            if surface.covered(b, k):
                times[b, k] = surface.step_time_s(b, k)
        covered = np.flatnonzero(np.isfinite(times[:, k]))
        if uncovered_factor is None or covered.size == 0:
            continue
        for b in np.setdiff1d(np.arange(1, max_batch_size + 1), covered):
            nearest = covered[np.abs(covered - b).argmin()]
            times[b, k] = times[nearest, k] * uncovered_factor
    return times


def cell_times(cells: Mapping[Cell, float], max_batch_size: int) -> FloatArray:
    """The dense float64[B+1, K+1] of recorded cells in seconds: a line between neighbours in
    the batch size; below the smallest its time; above the largest NaN."""
    times = np.full((max_batch_size + 1, max(k for _, k in cells) + 1), np.nan)
    every = np.arange(1, max_batch_size + 1)
    for k in {k for _, k in cells}:
        measured = sorted(b for b, length in cells if length == k)
        values = np.interp(every, measured, [cells[b, k] for b in measured])
        times[1:, k] = np.where(every <= measured[-1], values, np.nan)
    return times


def random_factors(
    shape: tuple[int, int], share: float, error: float, rng: np.random.Generator, width: int = 8
) -> FloatArray:
    """Factors for `misprofiled`, float64 of `shape`: on a random `share` of the cells uniform
    in 1-error..1+error, 1 elsewhere. A cell is `width` neighbouring batch sizes at one draft
    length, as an interpolated profile errs over a range."""
    rows = -(-shape[0] // width)
    wrong = rng.random((rows, shape[1])) < share
    factors = np.where(wrong, rng.uniform(1 - error, 1 + error, (rows, shape[1])), 1.0)
    return np.repeat(factors, width, axis=0)[: shape[0]]
