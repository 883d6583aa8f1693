"""Survival per draft position, estimated from counts.

S_i = P(guesses 1..i are all accepted, given that at least i were drafted). Its denominator is
the request-steps drafted through i, because the draft length varies: dividing by all drafts,
as vLLM's logged per-position rate does, makes later positions look worse than they are.
"""

from __future__ import annotations

import numpy as np

from tabletune.core.counts import SurvivalCounts
from tabletune.core.errors import CoreError
from tabletune.core.isotonic import non_increasing
from tabletune.core.quantiles import normal_halfwidth
from tabletune.core.words import ArrayLike, FloatArray

__all__ = [
    "SurvivalCounts",
    "blend",
    "blend_proposal_rate",
    "check_survival",
    "conditional_acceptance",
    "proposal_rate",
    "survival",
    "survival_interval",
]


def survival(counts: SurvivalCounts) -> FloatArray:
    """S_1..S_K, float64[K], non-increasing, in [0, 1], never NaN.

    Positions with observations: accepted/drafted, made non-increasing by isotonic regression
    weighted with the drafts. Positions never drafted follow from the last observed one at its
    conditional acceptance, or at the average conditional acceptance of all observed positions
    where that is lower (isotonic pooling can leave a last conditional acceptance of 1).
    Without any observation: zeros, which predict nothing from speculation.

    >>> survival(SurvivalCounts([100, 50, 0], [80, 32, 0], 100)).round(3).tolist()
    [0.8, 0.64, 0.512]
    """
    return _rates(counts.accepted_through, counts.drafted_through)


def proposal_rate(counts: SurvivalCounts) -> FloatArray:
    """P(the drafter proposes at least i guesses | it may), float64[K], non-increasing.

    1 everywhere for drafters that always fill the draft; below 1 for n-gram and suffix
    drafters. Positions never offered are extrapolated like survival.

    >>> proposal_rate(SurvivalCounts([30, 20], [20, 10], 100)).tolist()
    [0.3, 0.2]
    """
    return _rates(counts.drafted_through, counts.offered_through)


def _rates(successes: FloatArray, trials: FloatArray) -> FloatArray:
    observed = int(np.count_nonzero(trials > 0))
    rates = np.zeros(trials.size)
    if observed == 0:
        return rates
    raw = np.minimum(successes[:observed] / trials[:observed], 1.0)
    rates[:observed] = non_increasing(raw, trials[:observed])
    if observed < trials.size:
        last = rates[observed - 1]
        before = rates[observed - 2] if observed > 1 else 1.0
        ratio = min(last / before if before > 0 else 0.0, last ** (1.0 / observed))
        rates[observed:] = last * ratio ** np.arange(1, trials.size - observed + 1)
    return rates


def conditional_acceptance(survival_: ArrayLike) -> FloatArray:
    """c_i = S_i / S_{i-1} with S_0 = 1; 0 where S_{i-1} is 0. float64[K] -> float64[K].

    >>> conditional_acceptance([0.8, 0.4, 0.0]).tolist()
    [0.8, 0.5, 0.0]
    """
    values = check_survival(survival_)
    before = np.concatenate(([1.0], values[:-1]))
    return np.divide(values, before, out=np.zeros(values.size), where=before > 0)


def check_survival(survival_: ArrayLike) -> FloatArray:
    """The values as float64[K]; CoreError unless non-increasing and within [0, 1]."""
    values = np.array(survival_, dtype=np.float64)
    if (
        values.ndim != 1
        or not np.all(np.isfinite(values))
        or np.any((values < 0) | (values > 1))
        or np.any(values[1:] > values[:-1])
    ):
        raise CoreError(
            "survival",
            "a non-increasing sequence in [0, 1], one value per position",
            values.tolist(),
            "estimate it with `survival`, not with per-position rates",
        )
    return values


def blend(prior_survival: ArrayLike, prior_weight: float, counts: SurvivalCounts) -> FloatArray:
    """Survival from a prior and live counts, float64[K] with K of the longer of the two.

    prior_weight: how many drafted request-steps the prior is worth (>= 0).
    The conditional acceptances are blended, not the survivals: a position seldom drafted
    lately keeps the prior's chance *given* the guesses before it, on top of what is known
    about those. At weight 0, or beyond the prior's length, the counts decide alone; without
    counts the prior does.

    >>> blend([0.8, 0.4], 100, SurvivalCounts([100, 0], [40, 0], 100)).round(3).tolist()
    [0.6, 0.3]
    """
    prior = check_survival(prior_survival)
    return _blended(prior, prior_weight, counts.accepted_through, counts.drafted_through)


def blend_proposal_rate(
    prior_rate: ArrayLike, prior_weight: float, counts: SurvivalCounts
) -> FloatArray:
    """The same for the proposal rate; prior_weight in offered request-steps."""
    prior = check_survival(prior_rate)
    return _blended(prior, prior_weight, counts.drafted_through, counts.offered_through)


def _blended(
    prior: FloatArray, weight: float, successes: FloatArray, trials: FloatArray
) -> FloatArray:
    if not np.isfinite(weight) or weight < 0:
        raise CoreError("prior weight", "a finite number >= 0", weight, "0 ignores the prior")
    size = max(prior.size, trials.size)
    live = np.zeros(size)
    seen = np.zeros(size)
    live[: trials.size] = _rates(successes, trials)
    seen[: trials.size] = trials
    blended = np.zeros(size)
    value, live_before, prior_before, factor = 1.0, 1.0, 1.0, 0.0
    for i in range(size):
        prior_now = float(prior[i]) if i < prior.size else 0.0
        prior_mass = weight * prior_before if i < prior.size else 0.0
        live_mass = float(seen[i]) * live_before
        if prior_mass + live_mass > 0:
            hits = (weight * prior_now if i < prior.size else 0.0) + float(seen[i] * live[i])
            factor = min(hits / (prior_mass + live_mass), 1.0)
        # Where neither says anything the last conditional acceptance goes on.
        value *= factor
        blended[i] = value
        live_before, prior_before = float(live[i]), prior_now
    return blended


def survival_interval(counts: SurvivalCounts, confidence: float = 0.95) -> FloatArray:
    """Wilson's score interval of each S_i, float64[K, 2]: low, high.

    [0, 1] where nothing was drafted. Steps of one request are not independent, so the true
    uncertainty is somewhat larger. Source: Wilson 1927.

    >>> survival_interval(SurvivalCounts([100, 0], [80, 0], 100)).round(3).tolist()
    [[0.711, 0.867], [0.0, 1.0]]
    """
    z = normal_halfwidth(confidence)
    trials = counts.drafted_through
    interval = np.tile([0.0, 1.0], (trials.size, 1))
    seen = trials > 0
    n = trials[seen]
    p = np.minimum(counts.accepted_through[seen] / n, 1.0)
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    interval[seen, 0] = np.clip(centre - half, 0.0, 1.0)
    interval[seen, 1] = np.clip(centre + half, 0.0, 1.0)
    return interval
