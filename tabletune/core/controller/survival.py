"""Live survival per draft position, with what is uncertain about it, and changes of traffic.

Two memories of the counts fade at different speeds. The long one decides. When the short one
lies further from it than chance explains, traffic has changed: the long memory becomes the
short one, and grows again while traffic stays as it is. Chance is more than binomial, since
the guesses of one request are good or bad together; how much more is measured on the very
statistic that the test uses.
"""

from __future__ import annotations

import numpy as np

from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.counts import SurvivalCounts
from tabletune.core.survival import blend, blend_proposal_rate, proposal_rate, survival
from tabletune.core.words import FloatArray

_FIRST_DISPERSION = 4.0  # before anything is measured
_DISPERSION_TICKS = 20.0  # ticks that the first guess is worth
_DISPERSION_MEMORY = 120.0  # ticks remembered
_CLIP = 9.0  # a squared score counts at most so many times the dispersion
_LEAST_DRAFTS = 24.0  # in the short memory before the test speaks
_BLIND_DRAFTS = 2.0  # what complete ignorance of a conditional acceptance is worth
_HALF = float(np.log(2.0))


class LiveSurvival:
    """Feed it with `update`; read `gains`, `expected_tokens` and `log_acceptance_variance`."""

    def __init__(self, prior: SurvivalCounts, settings: ControllerSettings) -> None:
        self._settings = settings
        self._size = prior.max_draft_length
        self.long = SurvivalCounts.empty(self._size)
        self.short = SurvivalCounts.empty(self._size)
        self.unseen_s = np.zeros(self._size)
        self.dispersion = _FIRST_DISPERSION
        self._dispersion_ticks = _DISPERSION_TICKS
        self.changes = 0
        self.take_prior(prior)

    def take_prior(self, prior: SurvivalCounts) -> None:
        """Start from another prior; what was learned live stays."""
        self._prior_survival = survival(prior)
        self._prior_rate = proposal_rate(prior)
        self._prior_weight = min(float(prior.drafted_through[0]), self._settings.prior_weight)

    def update(self, observation: LiveObservation, elapsed_s: float) -> bool:
        """Take one tick in; whether traffic has changed."""
        settings = self._settings
        drafted = np.asarray(observation.drafted_through, dtype=np.float64)
        self.unseen_s = np.where(drafted > 0, 0.0, self.unseen_s + elapsed_s)
        news = SurvivalCounts(
            drafted,
            observation.accepted_through,
            observation.request_steps,
            observation.offered_through,
        )
        # Memory fades by time, and only where something new takes the place of the old: a
        # position that is not drafted keeps what is known, and its doubt grows (see below).
        self.long = _faded(self.long, news, settings.long_half_life_s, elapsed_s)
        self.short = _faded(self.short, news, settings.short_half_life_s, elapsed_s)
        scores = self._scores()
        if scores.size == 0:
            return False
        worst = float(scores.max())
        if worst > settings.change_z**2 * self.dispersion:
            self.changes += 1
            self.long = self.short
            self._prior_weight *= 0.25
            return True
        self._measure_dispersion(worst)
        return False

    def _scores(self) -> FloatArray:
        """Squared binomial scores of short against long, of the rates that moved enough."""
        scores: list[float] = []
        pairs = (
            (self.short.accepted_through, self.short.drafted_through,
             self.long.accepted_through, self.long.drafted_through),
            (self.short.drafted_through, self.short.offered_through,
             self.long.drafted_through, self.long.offered_through),
        )  # fmt: skip
        for new_hits, new_trials, old_hits, old_trials in pairs:
            # The long memory holds the short one's counts too: compare with the rest of it.
            rest = np.maximum(old_trials - new_trials, 0.0)
            seen = (new_trials >= _LEAST_DRAFTS) & (rest >= _LEAST_DRAFTS)
            if not seen.any():
                continue
            trials, others = new_trials[seen], rest[seen]
            hits = new_hits[seen]
            other_hits = np.clip(old_hits[seen] - hits, 0.0, others)
            pooled = (hits + other_hits) / (trials + others)
            noise = pooled * (1 - pooled) * (1 / trials + 1 / others)
            shift = np.abs(hits / trials - other_hits / others)
            counts = (shift >= self._settings.change_min_shift) & (noise > 0)
            values = np.divide(shift**2, noise, out=np.zeros(shift.size), where=counts)
            scores += values.tolist()
        return np.asarray(scores, dtype=np.float64)

    def _measure_dispersion(self, score: float) -> None:
        # The largest of a few scores is what the test looks at; one in calm is about 2.
        score = min(score / 2.0, _CLIP * self.dispersion)
        weight = min(self._dispersion_ticks + 1.0, _DISPERSION_MEMORY)
        self._dispersion_ticks = weight
        self.dispersion = max(1.0, self.dispersion + (score - self.dispersion) / weight)

    def survival(self) -> FloatArray:
        """S_1..S_K, float64[K]."""
        return blend(self._prior_survival, self._prior_weight, self._discounted())

    def proposal_rate(self) -> FloatArray:
        """P(at least i guesses proposed), float64[K]."""
        rate = blend_proposal_rate(self._prior_rate, self._prior_weight, self._discounted())
        return np.minimum.accumulate(np.clip(rate, 0.0, 1.0))

    def gains(self) -> FloatArray:
        """p_i * S_i: expected tokens that guess i adds, float64[K]."""
        return np.minimum.accumulate(self.survival() * self.proposal_rate())

    def _discounted(self) -> SurvivalCounts:
        """The long memory, at what its correlated counts are worth against the prior's."""
        return self.long.faded(1.0 / self.dispersion)

    def log_acceptance_variance(self) -> FloatArray:
        """Variance of the log of each conditional acceptance, float64[K].

        Of a binomial share; unseen positions lose what they are worth with time.
        """
        values = np.maximum(self.survival(), 1e-6)
        before = np.concatenate(([1.0], values[:-1]))
        chance = np.clip(values / before, 0.02, 0.98)
        stale = 0.5 ** (self.unseen_s / self._settings.long_half_life_s)
        worth = self.long.drafted_through / self.dispersion + self._prior_weight
        trials = np.maximum(worth * before * stale, 0.0) + _BLIND_DRAFTS
        return (1 - chance) / (chance * trials)


def _faded(
    memory: SurvivalCounts, news: SurvivalCounts, half_life_s: float, elapsed_s: float
) -> SurvivalCounts:
    if news.request_steps == 0:
        return memory
    # Within a position the counts fade alike, so that no rate changes by fading.
    share = 0.5 ** (elapsed_s / half_life_s)
    return memory.faded(share) + news
