"""Live survival per draft position, with what is uncertain about it, and changes of traffic.

Two memories of the counts fade at different speeds. The long one decides. When the short one
lies further from the rest of it than chance explains, traffic has changed: the long memory
becomes the short one, and grows again while traffic stays as it is. Chance is more than
binomial, since the guesses of one request are good or bad together; how much more is measured
on the very statistic that the test uses.
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
_LARGEST_OF_FEW = 1.3
_CLIP = 9.0  # a squared score counts at most so many times the dispersion
_LEAST_DRAFTS = 24.0  # in the short memory before the test speaks
_BLIND_DRAFTS = 2.0  # what complete ignorance of a conditional acceptance is worth
_MIXED_HALF_LIVES = 2.0  # of the short memory, after a change
_PRIOR_KEPT = 0.25  # of the prior's weight at a change of traffic

# Rows of a memory: float64[3, K].
_ACCEPTED, _DRAFTED, _OFFERED = 0, 1, 2


class LiveSurvival:
    """Feed it with `update`; read the rest, which stays valid until the next update.

    survival, proposal_rate: float64[K]. gains: float64[K], p_i * S_i, the expected tokens
    that guess i adds. log_acceptance_variance: float64[K], variance of the log of each
    conditional acceptance; log_acceptance_trials: float64[K], the trials it rests on.
    unseen_s: float64[K], seconds since something was drafted through
    each position. dispersion: variance of the counts over that of independent guesses.
    changes: of traffic, so far.
    """

    def __init__(self, prior: SurvivalCounts, settings: ControllerSettings) -> None:
        self._settings = settings
        size = prior.max_draft_length
        self._long, self._short = np.zeros((3, size)), np.zeros((3, size))
        self._request_steps = 0.0  # of the long memory
        self._short_request_steps = 0.0
        self._dispersion_ticks = _DISPERSION_TICKS
        self.unseen_s = np.zeros(size)
        self.dispersion = _FIRST_DISPERSION
        self._mixed_s = 0.0
        self.changes = 0
        self.take_prior(prior)

    def take_prior(self, prior: SurvivalCounts) -> None:
        """Start from another prior; what was learned live stays."""
        self._prior_survival = survival(prior)
        self._prior_rate = proposal_rate(prior)
        self._prior_weight = min(float(prior.drafted_through[0]), self._settings.prior_weight)
        self._estimate()

    def update(self, observation: LiveObservation, elapsed_s: float) -> bool:
        """Take one tick in; whether traffic has changed."""
        settings = self._settings
        news = self._news(observation)
        self.unseen_s = np.where(news[_DRAFTED] > 0, 0.0, self.unseen_s + elapsed_s)
        if observation.request_steps == 0:
            self._estimate()
            return False
        # Counts of a position fade alike, so that no rate changes by fading.
        long, short = (
            0.5 ** (elapsed_s / half_life_s)
            for half_life_s in (settings.long_half_life_s, settings.short_half_life_s)
        )
        self._long = self._long * long + news
        self._short = self._short * short + news
        self._request_steps = self._request_steps * long + observation.request_steps
        self._short_request_steps = self._short_request_steps * short + observation.request_steps
        changed = self._test()
        self._purge(changed, elapsed_s)
        self._estimate()
        return changed

    def _purge(self, changed: bool, elapsed_s: float) -> None:
        """What a change was noticed by is a mixture of old and new requests: once it has left
        the short memory, the long one starts from that again."""
        if changed:
            self._mixed_s = _MIXED_HALF_LIVES * self._settings.short_half_life_s
        elif self._mixed_s > 0:
            self._mixed_s -= elapsed_s
            if self._mixed_s <= 0:
                self._restart()

    def _restart(self) -> None:
        self._long, self._request_steps = self._short.copy(), self._short_request_steps

    def _news(self, observation: LiveObservation) -> FloatArray:
        """Counts of the positions that are known here; the engine may have others."""
        rows = np.array(
            [
                observation.accepted_through,
                observation.drafted_through,
                observation.offered_through,
            ],
            dtype=np.float64,
        )
        news = np.zeros(self._long.shape)
        shared = min(rows.shape[1], news.shape[1])
        news[:, :shared] = rows[:, :shared]
        return news

    def _test(self) -> bool:
        scores, shifts = self._scores()
        if scores.size == 0:
            return False
        far = scores > self._settings.change_z**2 * self.dispersion
        # Tiny shifts are no change of traffic, however sure they are.
        if not np.any(far & (shifts >= self._settings.change_min_shift)):
            self._measure_dispersion(float(scores.max()))
            return False
        self.changes += 1
        self._restart()
        self._prior_weight *= _PRIOR_KEPT
        return True

    def _scores(self) -> tuple[FloatArray, FloatArray]:
        """Squared binomial scores of the short memory against the rest of the long one, of
        accepted of drafted and of drafted of offered, and how far these rates moved."""
        rest = np.maximum(self._long - self._short, 0.0)
        hits, trials = self._short[:2], self._short[1:]
        others = rest[1:]
        other_hits = np.minimum(rest[:2], others)
        seen = (trials >= _LEAST_DRAFTS) & (others >= _LEAST_DRAFTS)
        trials, others, hits, other_hits = trials[seen], others[seen], hits[seen], other_hits[seen]
        pooled = (hits + other_hits) / (trials + others)
        noise = pooled * (1 - pooled) * (1 / trials + 1 / others)
        shift = np.abs(hits / trials - other_hits / others)
        return np.divide(shift**2, noise, out=np.zeros(shift.size), where=noise > 0), shift

    def _measure_dispersion(self, score: float) -> None:
        # The largest of a few scores, which go together, is a little more than one of them.
        score = min(score / _LARGEST_OF_FEW, _CLIP * self.dispersion)
        weight = min(self._dispersion_ticks + 1.0, _DISPERSION_MEMORY)
        self._dispersion_ticks = weight
        self.dispersion = max(1.0, self.dispersion + (score - self.dispersion) / weight)

    def _estimate(self) -> None:
        # Correlated counts are worth less against the prior's.
        worth = self._long / self.dispersion
        counts = SurvivalCounts(
            worth[_DRAFTED],
            np.minimum(worth[_ACCEPTED], worth[_DRAFTED]),
            max(self._request_steps / self.dispersion, float(worth[_OFFERED, 0])),
            worth[_OFFERED],
        )
        self.survival = blend(self._prior_survival, self._prior_weight, counts)
        rate = blend_proposal_rate(self._prior_rate, self._prior_weight, counts)
        self.proposal_rate = np.minimum.accumulate(np.clip(rate, 0.0, 1.0))
        self.gains = np.minimum.accumulate(self.survival * self.proposal_rate)
        values = np.maximum(self.survival, 1e-6)
        self._reached = np.concatenate(([1.0], values[:-1]))
        # Positions that are not seen lose what they are worth with time.
        stale = 0.5 ** (self.unseen_s / self._settings.long_half_life_s)
        known = (worth[_DRAFTED] + self._prior_weight) * self._reached * stale
        self.log_acceptance_trials = known + _BLIND_DRAFTS
        chance = np.clip(values / self._reached, 0.02, 0.98)
        self.log_acceptance_variance = (1 - chance) / (chance * self.log_acceptance_trials)

    def told_by(self, request_steps: float) -> FloatArray:
        """The part of each `log_acceptance_variance` that so many more request-steps, drafted
        through all positions, are expected to take away, float64[K]."""
        more = request_steps * self._reached / self.dispersion
        return self.log_acceptance_variance * more / (self.log_acceptance_trials + more)
