"""How many tokens prompts and outputs have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tabletune.core.words import IntArray
from tabletune.simulate.errors import SimulationError


class Lengths(Protocol):
    """A distribution of token counts."""

    def draw(self, rng: np.random.Generator, count: int) -> IntArray:
        """int64[count], each at least 1."""
        ...


@dataclass(frozen=True)
class FixedLength:
    """Always the same number of tokens."""

    tokens: int

    def __post_init__(self) -> None:
        _check(self.tokens)

    def draw(self, rng: np.random.Generator, count: int) -> IntArray:
        return np.full(count, self.tokens)


@dataclass(frozen=True)
class LognormalLength:
    """exp(N(log median, sigma)), rounded, and cut to low..high."""

    median: float
    sigma: float
    low: int = 1
    high: int = 1_000_000

    def __post_init__(self) -> None:
        _check(self.low)
        if not (self.median >= 1 and self.sigma >= 0 and self.high >= self.low):
            raise SimulationError(
                "lognormal length",
                "median >= 1, sigma >= 0 and high >= low",
                (self.median, self.sigma, self.low, self.high),
                "sigma is the standard deviation of the logarithm",
            )

    def draw(self, rng: np.random.Generator, count: int) -> IntArray:
        values = np.exp(rng.normal(np.log(self.median), self.sigma, count))
        return np.clip(np.rint(values), self.low, self.high).astype(np.int64)


@dataclass(frozen=True)
class ListedLength:
    """Drawn with replacement from recorded values."""

    values: Sequence[int]

    def __post_init__(self) -> None:
        if not self.values:
            raise SimulationError("listed lengths", "at least one", [], "record some requests")
        _check(min(self.values))

    def draw(self, rng: np.random.Generator, count: int) -> IntArray:
        return rng.choice(np.array(self.values, dtype=np.int64), count)


def _check(tokens: int) -> None:
    if tokens < 1:
        raise SimulationError("length", "at least 1 token", tokens, "every request has a token")
