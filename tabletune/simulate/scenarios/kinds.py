"""Kinds of traffic by their survival. All of it is synthetic.

A model card gives the mean accepted length of a drafter at K guesses on a benchmark; from it
follows one chance c that holds at every position: mean = 1 + c + c^2 + … + c^K. The true
survival falls in another way, so these are shapes to adapt to, not measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tabletune.core.survival import SurvivalCounts
from tabletune.simulate.acceptance import AcceptanceModel

SPREAD = 0.5
"""Spread of acceptance across the requests of a kind, see `AcceptanceModel`."""

SOURCE = (
    "code, chat, math: mean accepted length 3.52 on HumanEval, 2.56 on MT-bench and 3.78 on "
    "GSM8K at K=7 and temperature 1, of RedHatAI/Qwen3-235B-A22B-Instruct-2507-speculator.eagle3 "
    "as stated in the model card of nebius/EAGLE3-Qwen3-235B-A22B-Instruct-2507. "
    "foreign: 5 of 624 first guesses, requests of a business, AQ-MedAI/GLM-5.1-eagle3, "
    "discussion 3. Made into survival with one chance at every position: synthetic."
)


@dataclass(frozen=True)
class Kind:
    """A kind of traffic. survival: S_1..S_K, the mean over requests."""

    name: str
    survival: tuple[float, ...]
    spread: float = SPREAD

    @property
    def acceptance(self) -> AcceptanceModel:
        return AcceptanceModel(self.survival, self.spread)

    def expected_tokens(self) -> np.ndarray:
        """E(0)..E(K) over request-steps, float64[K+1]: what an engine sees."""
        return self.acceptance.expected_tokens_per_step()

    def counts(self, request_steps: float = 3700.0) -> SurvivalCounts:
        """What a run of so many request-steps at the longest length would have counted, without
        its noise."""
        seen = np.diff(self.expected_tokens())
        return SurvivalCounts([request_steps] * seen.size, seen * request_steps, request_steps)


def constant_chance(mean_accepted: float, guesses: int) -> float:
    """The chance per position that gives a mean accepted length, the target's own token
    included, with so many guesses.

    >>> round(constant_chance(1.75, 2), 3)
    0.5
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**i for i in range(guesses + 1)) < mean_accepted:
            low = middle
        else:
            high = middle
    return low


def _by_chance(name: str, chance: float, longest: int = 4) -> Kind:
    return Kind(name, tuple(round(chance**i, 4) for i in range(1, longest + 1)))


CODE = _by_chance("code", constant_chance(3.52, 7))
CHAT = _by_chance("chat", constant_chance(2.56, 7))
MATH = _by_chance("math", constant_chance(3.78, 7))
FOREIGN = _by_chance("foreign", 5 / 624)


def models(kinds: Sequence[Kind]) -> list[AcceptanceModel]:
    """For `Engine`: traffic kind i follows kinds[i]."""
    return [kind.acceptance for kind in kinds]
