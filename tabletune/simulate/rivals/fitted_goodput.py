"""TurboSpec-style: a fitted step-time model, one acceptance rate, and the best length by both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tabletune.core.words import Cell, FloatArray
from tabletune.simulate.errors import SimulationError
from tabletune.simulate.policy import Observation, Steps


@dataclass(frozen=True, eq=False)
class FittedStepTime:
    """T = c_tok·b(K+1) + c_request·b + c_drafting·[K>0] + c_fixed + c_context·context tokens.

    coefficients: float64[4], the first four. cells: measured times, preferred to the model
    below `measured_below` requests.
    """

    coefficients: FloatArray
    cells: Mapping[Cell, float]
    measured_below: int = 32
    context_s_per_tok: float = 0.0

    @classmethod
    def fit(
        cls,
        cells: Mapping[Cell, float],
        measured_below: int = 32,
        context_s_per_tok: float = 0.0,
    ) -> FittedStepTime:
        """Least squares over measured cells, {(batch size, draft length): seconds}."""
        if len(cells) < 4:
            raise SimulationError("cells", "at least 4 to fit 4 coefficients", len(cells), "add")
        features = np.array([_features(b, k) for b, k in cells])
        coefficients = np.linalg.lstsq(features, np.array(list(cells.values())), rcond=None)[0]
        return cls(coefficients.astype(np.float64), dict(cells), measured_below, context_s_per_tok)

    def step_time_s(self, batch_size: int, draft_length: int, context_tok: int = 0) -> float:
        """Seconds, never below a microsecond: a linear fit may go negative."""
        if batch_size < self.measured_below and (batch_size, draft_length) in self.cells:
            return self.cells[batch_size, draft_length]
        fitted = float(self.coefficients @ _features(batch_size, draft_length))
        return max(fitted + self.context_s_per_tok * context_tok, 1e-6)


def _features(batch_size: int, draft_length: int) -> FloatArray:
    return np.array([batch_size * (draft_length + 1), batch_size, float(draft_length > 0), 1.0])


def geometric_tokens(acceptance: float, draft_length: int) -> float:
    """(1 - a^(k+1)) / (1 - a): expected tokens where every guess is accepted with chance a.

    >>> geometric_tokens(0.5, 2), geometric_tokens(1.0, 2)
    (1.75, 3.0)
    """
    if acceptance >= 1:
        return draft_length + 1.0
    return (1 - acceptance ** (draft_length + 1)) / (1 - acceptance)


@dataclass(frozen=True)
class FittedGoodputOptions:
    """interval_steps: a choice holds for so many steps, whatever the batch does meanwhile.
    no_draft_bonus: factor on the goodput of not drafting. smoothing: of the acceptance rate
    and of the share of requests with a proposal."""

    interval_steps: int = 1
    no_draft_bonus: float = 1.1
    smoothing: float = 0.15
    initial_acceptance: float = 0.7


class FittedGoodputPolicy:
    """Scans k = 0, 1, … up to `longest` and stops at the first fall of predicted goodput."""

    wants_steps = True

    def __init__(
        self, model: FittedStepTime, longest: int, options: FittedGoodputOptions | None = None
    ) -> None:
        self._model, self._longest = model, longest
        self._options = options or FittedGoodputOptions()
        self.acceptance = self._options.initial_acceptance
        self.proposing = 1.0
        self._length = 0
        self._next_step = 0

    def goodput_tok_s(self, batch_size: int, draft_length: int, context_tok: int = 0) -> float:
        """Predicted: (m·geometric + b - m) / T, m the requests with a proposal."""
        proposing = self.proposing * batch_size
        tokens = proposing * geometric_tokens(self.acceptance, draft_length)
        tokens += batch_size - proposing
        goodput = tokens / self._model.step_time_s(batch_size, draft_length, context_tok)
        return goodput * (self._options.no_draft_bonus if draft_length == 0 else 1.0)

    def draft_length(self, batch_size: int, observation: Observation) -> int:
        if observation.step >= self._next_step:
            self._next_step = observation.step + self._options.interval_steps
            self._length = self._best(batch_size, observation.context_tok)
        return self._length

    def _best(self, batch_size: int, context_tok: int) -> int:
        best, goodput = 0, self.goodput_tok_s(batch_size, 0, context_tok)
        for k in range(1, self._longest + 1):
            following = self.goodput_tok_s(batch_size, k, context_tok)
            if following < goodput:
                break
            best, goodput = k, following
        return best

    def steady_steps(self, observation: Observation) -> int:
        return max(1, self._next_step - observation.step)

    def observe(self, steps: Steps) -> None:
        if not steps.verified_length or not steps.decode_requests:
            return
        share = self._options.smoothing
        proposing = steps.drafted_through[:, 0].tolist()
        totals = steps.drafted_through.sum(axis=1).tolist()
        hits = steps.accepted_through.sum(axis=1).tolist()
        for requests, drafted, accepted in zip(proposing, totals, hits, strict=True):
            self.proposing += share * (requests / steps.decode_requests - self.proposing)
            if drafted:
                self.acceptance += share * (accepted / drafted - self.acceptance)
