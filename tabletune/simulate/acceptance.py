"""Synthetic acceptance: how many guesses of a draft the target accepts.

A draft is accepted through position i with probability S_i (survival). One uniform number per
request and step decides: guess i survives where it lies below S_i, so that the counts at any
draft length have exactly that survival. Requests may differ: their survival is
sigmoid(mu_i + spread·z) with a standard normal z of the request, mu_i such that the mean over
requests is S_i (a logit-normal; the positions of one request are good or bad together).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tabletune.core.goodput import expected_tokens
from tabletune.core.survival import check_survival
from tabletune.core.words import ArrayLike, FloatArray
from tabletune.simulate.errors import SimulationError

Thresholds = npt.NDArray[np.float32]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_CHUNK = 512


@dataclass(frozen=True, eq=False)
class AcceptanceModel:
    """survival: float64[K], the mean over requests. spread: 0: all requests alike; 1: the
    odds of acceptance of a good request (one standard deviation) are e times the middle's.
    proposal_rate: float64[K], P(at least i guesses are proposed), drawn anew per request and
    step and independent of acceptance; None: drafts are always full.
    """

    survival: FloatArray
    spread: float = 0.0
    proposal_rate: FloatArray | None = None

    def __init__(
        self,
        survival: ArrayLike,
        spread: float = 0.0,
        proposal_rate: ArrayLike | None = None,
    ) -> None:
        values = check_survival(survival)
        rate = None if proposal_rate is None else check_survival(proposal_rate)
        if values.size == 0 or not (np.isfinite(spread) and spread >= 0):
            found = (values.size, spread)
            raise SimulationError("acceptance", "positions and a spread >= 0", found, "set both")
        if rate is not None and rate.shape != values.shape:
            raise SimulationError(
                "proposal_rate", f"{values.size} positions", rate.size, "one value per position"
            )
        object.__setattr__(self, "survival", values)
        object.__setattr__(self, "spread", float(spread))
        object.__setattr__(self, "proposal_rate", rate)

    @property
    def max_draft_length(self) -> int:
        return int(self.survival.size)

    @cached_property
    def _centres(self) -> FloatArray:
        """mu_i by bisection; -inf and inf where S_i is 0 or 1."""
        low, high = np.full(self.survival.size, -60.0), np.full(self.survival.size, 60.0)
        for _ in range(80):
            middle = (low + high) / 2
            mean = _sigmoid(middle[:, None] + self.spread * _NODES) @ _WEIGHTS
            low = np.where(mean < self.survival, middle, low)
            high = np.where(mean < self.survival, high, middle)
        centres = (low + high) / 2
        centres[self.survival <= 0] = -np.inf
        centres[self.survival >= 1] = np.inf
        return centres

    def request_survival(self, quality: FloatArray) -> FloatArray:
        """Survival of requests of standard normal `quality`: float64[n] -> float64[n, K].

        >>> AcceptanceModel([0.5, 0.25], spread=1.0).request_survival(np.array([0.0])).round(2)
        array([[0.5 , 0.21]])
        """
        if self.spread == 0:
            return np.tile(self.survival, (quality.size, 1))
        return _sigmoid(self._centres + self.spread * quality[:, None])

    def expected_tokens(self) -> FloatArray:
        """E(0)..E(K) of a request drawn at random, float64[K+1]."""
        return expected_tokens(self.survival, self.proposal_rate)

    def expected_tokens_per_step(self) -> FloatArray:
        """E(K) over request-steps, float64[K+1]: what an engine that serves requests of equal
        output sees. Bad requests take more steps, so it is the harmonic mean over requests;
        without spread the same as `expected_tokens`."""
        gains = self.request_survival(_NODES)
        if self.proposal_rate is not None:
            gains = gains * self.proposal_rate
        tokens = 1.0 + np.concatenate((np.zeros((_NODES.size, 1)), np.cumsum(gains, 1)), axis=1)
        return 1.0 / (_WEIGHTS @ (1.0 / tokens))


class RequestQualities:
    """Draws the quality of each new request and turns it into its thresholds."""

    def __init__(self, models: tuple[AcceptanceModel, ...], rng: np.random.Generator) -> None:
        self._models, self._rng = models, rng
        self._drawn: list[float] = []
        self._rows: list[list[Thresholds]] = []
        self._left = 0

    def new(self, kind: int) -> tuple[float, Thresholds]:
        """(quality, thresholds float32[K]) of one more request."""
        if not self._left:
            quality = self._rng.normal(size=_CHUNK)
            self._drawn = quality.tolist()
            self._rows = [
                list(m.request_survival(quality).astype(np.float32)) for m in self._models
            ]
            self._left = _CHUNK
        self._left -= 1
        return self._drawn[self._left], self._rows[kind][self._left]


def _sigmoid(x: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-x))
