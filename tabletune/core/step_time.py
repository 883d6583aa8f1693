"""One step time per cell from many samples, robust to outliers, with its uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tabletune.core.errors import CoreError
from tabletune.core.quantiles import (
    check_confidence,
    median_rank,
    normal_halfwidth,
    student_halfwidth,
)
from tabletune.core.words import ArrayLike, FloatArray

StepKind = Literal["constant", "mixed"]

_FAR_SPREADS = 8.0  # an outlier lies this many robust standard deviations above the middle,
_FAR_SHARE = 0.25  # and at least this share of the middle: quiet cells have tiny spreads
_MIXED_REACH = 3.0  # mixed steps: so many times the distance from median to 90th percentile,
_MIXED_SHARE = 1.0  # and at least this share of the median
_ALTERNATING = -0.25  # lag-1 autocorrelation below which long and short steps alternate


@dataclass(frozen=True)
class StepTimeEstimate:
    """The step time of one (batch size, draft length) cell.

    step_time_s: seconds per engine step. low_s, high_s: its confidence interval.
    sample_count: steps it rests on. outlier_count: those of them far above the rest.
    Deliberately unchecked: `plausibility` judges what may be used.

    >>> round(StepTimeEstimate(0.004, 0.0039, 0.0041, 80, 0).relative_halfwidth, 3)
    0.025
    """

    step_time_s: float
    low_s: float
    high_s: float
    sample_count: int
    outlier_count: int

    @property
    def relative_halfwidth(self) -> float:
        """Half the interval's width over the step time; infinite where that makes no sense."""
        width = self.high_s - self.low_s
        if not (math.isfinite(self.step_time_s) and self.step_time_s > 0 and width >= 0):
            return math.inf
        return width / 2 / self.step_time_s


def estimate_step_time(
    samples_s: ArrayLike, kind: StepKind = "constant", confidence: float = 0.95
) -> StepTimeEstimate:
    """Estimate the step time of one cell. Deterministic: no random numbers are drawn.

    samples_s: float64[n], seconds per step in the order measured.
    kind "constant": every step does the same work (model drafters). The median, with a
        distribution-free interval from order statistics, widened for autocorrelation. Where
        long and short steps alternate (asynchronous scheduling) means of neighbouring pairs
        stand in for the steps, since a median would pick one of the two.
    kind "mixed": the work differs from step to step (n-gram: some requests have no
        proposal). Throughput then needs the mean, so: the mean with outliers far above
        lowered to a fence, and a Student interval over block means, which respects
        autocorrelation. A legitimate kind of step that is rarer than one in ten and takes
        more than twice the median is lowered too.
    Fewer than 6 samples: a Student interval around the estimate; a single one: +-100 %.
    Negative samples are kept (a difference of two durations can be negative) and make the
    cell implausible. Raises CoreError for no samples, or ones that are not finite.

    >>> estimate_step_time([0.004, 0.0041, 0.0039] * 20 + [0.5]).step_time_s
    0.004
    """
    samples = np.array(samples_s, dtype=np.float64)
    check_confidence(confidence)
    if samples.ndim != 1 or samples.size == 0 or not np.all(np.isfinite(samples)):
        found = samples.tolist() if samples.size < 10 else f"{samples.size} values, some not finite"
        raise CoreError("step time samples", "at least one finite time", found, "measure again")
    if kind == "constant":
        return _constant(samples, confidence)
    if kind == "mixed":
        return _mixed(samples, confidence)
    raise CoreError("kind", "'constant' or 'mixed'", kind, "n-gram and suffix drafters are mixed")


def _constant(samples: FloatArray, confidence: float) -> StepTimeEstimate:
    fence = _constant_fence(samples)
    outliers = int(np.count_nonzero(samples > fence))
    values = samples
    kept = samples[samples <= fence]
    if kept.size >= 12 and _lag1(kept) < _ALTERNATING:
        values = (samples[:-1:2] + samples[1::2]) / 2
    middle = float(np.median(values))
    low, high = _median_interval(values, confidence)
    return StepTimeEstimate(
        middle, min(low, middle), max(high, middle), int(samples.size), outliers
    )


def _constant_fence(samples: FloatArray) -> float:
    middle = float(np.median(samples))
    spread = 1.4826 * float(np.median(np.abs(samples - middle)))
    return middle + max(_FAR_SPREADS * spread, _FAR_SHARE * abs(middle))


def _lag1(values: FloatArray) -> float:
    """Autocorrelation of neighbours, 0 for constant values."""
    centred = values - values.mean()
    power = float(centred @ centred)
    # Below the resolution of the clock there is nothing but rounding to correlate.
    if power <= (1e-9 * abs(float(values.mean()))) ** 2 * values.size:
        return 0.0
    return float(centred[:-1] @ centred[1:]) / power


def _median_interval(values: FloatArray, confidence: float) -> tuple[float, float]:
    ordered = np.sort(values)
    correlation = max(0.0, _lag1(np.minimum(values, _constant_fence(values))))
    # n (1-r)/(1+r): the number of independent samples that an AR(1) series is worth.
    effective = values.size * (1 - correlation) / (1 + correlation)
    rank = median_rank(values.size, confidence)
    if rank is None:
        return _student_interval(values, float(np.median(values)), confidence)
    share = (rank - 1) / (values.size - 1)
    if correlation > 0:
        share = min(share, max(0.0, 0.5 - normal_halfwidth(confidence) / (2 * effective**0.5)))
    low, high = np.quantile(ordered, [share, 1 - share])
    return float(low), float(high)


def _mixed(samples: FloatArray, confidence: float) -> StepTimeEstimate:
    median, upper = (float(q) for q in np.quantile(samples, [0.5, 0.9]))
    fence = upper + max(_MIXED_REACH * (upper - median), _MIXED_SHARE * abs(median))
    outliers = int(np.count_nonzero(samples > fence))
    lowered = np.minimum(samples, fence)
    mean = float(lowered.mean())
    low, high = _student_interval(_block_means(lowered), mean, confidence)
    return StepTimeEstimate(mean, low, high, int(samples.size), outliers)


def _block_means(values: FloatArray) -> FloatArray:
    """Means of 4 to 16 consecutive blocks of at least 8; fewer than 32 values: themselves."""
    if values.size < 32:
        return values
    blocks = min(16, values.size // 8)
    return np.array([block.mean() for block in np.array_split(values, blocks)])


def _student_interval(values: FloatArray, centre: float, confidence: float) -> tuple[float, float]:
    if values.size == 1:
        return centre - abs(centre), centre + abs(centre)
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    half = student_halfwidth(confidence, int(values.size) - 1) * error
    return centre - half, centre + half
