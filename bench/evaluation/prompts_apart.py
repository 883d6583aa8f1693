"""Scores with prompts priced alike, and windows pooled by draft length.

What a prompt adds to its step is told by all windows of a load together (core/prompt_price.py).
How many of them fall into a window is luck, too; so the share of steps with a prompt is that of
all windows here:

    score = 1 / (1 / tokens per second away from prompts + extra · prompt steps per token).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.evaluation.cells import Cell
from bench.evaluation.window import score_of
from tabletune.core.prompt_price import PromptedWindow, PromptPrice, price

RESAMPLES = 1000
#: A window counts for a draft length if all but this share of its steps ran it.
OTHER_STEPS = 0.005


@dataclass(frozen=True)
class PromptCost:
    """price: of a step with a prompt. per_tok: such steps per output token."""

    price: PromptPrice
    per_tok: float

    def extra_of(self, window: Cell) -> float:
        """Of the draft lengths that a window's steps had."""
        return float(sum(s * self.price.of(int(k)) for k, s in window["lengths"].items()))


def fit(windows: Sequence[Cell]) -> PromptCost:
    """What prompts cost over all windows of a load."""
    told = [w for w in windows if w["prefill_steps"] > 0 and w["decode_tok_s"] > 0]
    if not told:
        return PromptCost(price([]), 0.0)
    per_tok = sum(w["prefill_steps"] for w in windows) / sum(w["output_tok"] for w in windows)
    return PromptCost(price([prompted(window) for window in told]), per_tok)


def prompted(window: Cell) -> PromptedWindow:
    """A window that has steps away from prompts; its tokens are without the luck of acceptance."""
    return PromptedWindow(
        tokens=score_of(window, open_load=False) * window["seconds"],
        seconds=window["seconds"],
        steps=window["steps"],
        prompt_steps=window["prefill_steps"],
        plain_step_s=_plain_step_s(window),
        length=only_length(window),
    )


def score(window: Cell, cost: PromptCost) -> float:
    """Output tokens per second at the load's price and share of prompts, for one window; as
    measured where every step of it was near a prompt."""
    if not window["decode_tok_s"] > 0:
        return score_of(window, open_load=False)
    return float(1 / (1 / window["decode_tok_s"] + cost.extra_of(window) * cost.per_tok))


def only_length(window: Cell) -> int | None:
    """The single draft length that a window ran; None where it ran several."""
    length, share = max(window["lengths"].items(), key=lambda item: item[1])
    return int(length) if share >= 1 - OTHER_STEPS else None


def _plain_step_s(window: Cell) -> float:
    tokens = score_of(window, open_load=False) * window["seconds"] / window["steps"]
    return float(tokens / window["decode_tok_s"])


def by_length(windows: Sequence[Cell], cost: PromptCost) -> dict[int, np.ndarray]:
    """Scores of the windows that ran a single draft length, whatever policy chose it."""
    found: dict[int, list[float]] = {}
    for window in windows:
        length = only_length(window)
        if length is not None:
            found.setdefault(length, []).append(score(window, cost))
    return {length: np.array(scores) for length, scores in sorted(found.items())}


def shares_of_best(
    windows: Sequence[Cell],
    cost: PromptCost,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> dict[int, list[float]]:
    """[mean, low, high] of each length's mean score over that of the best one. cost: of `windows`.

    Windows are drawn anew within each length, and the prices fitted anew to every draw: how
    well they are known is most of what is not known.
    """
    groups: dict[int | None, list[Cell]] = {}
    for window in windows:
        groups.setdefault(only_length(window), []).append(window)
    whole = {k: v.mean() for k, v in by_length(windows, cost).items()}
    best = max(whole, key=lambda length: whole[length])
    drawn: dict[int, list[float]] = {length: [] for length in whole}
    for _ in range(resamples):
        picked = [
            group[i]
            for group in groups.values()
            for i in rng.integers(0, len(group), len(group)).tolist()
        ]
        means = {k: v.mean() for k, v in by_length(picked, fit(picked)).items()}
        for length, mean in means.items():
            drawn[length].append(float(mean / means[best]))
    return {
        length: with_limits(float(mean / whole[best]), drawn[length])
        for length, mean in whole.items()
    }


def shares_of_policy(
    rounds: Sequence[dict[str, Cell]],
    policies: Sequence[str],
    best: str,
    cost: PromptCost,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> dict[str, list[float]]:
    """[mean, low, high] of each policy's mean score over that of `best`. cost: of all windows.

    Rounds are drawn anew, and the prices fitted anew to every draw.
    """
    whole = _means(rounds, policies, cost)
    drawn: dict[str, list[float]] = {name: [] for name in whole}
    for _ in range(resamples):
        picked = [rounds[i] for i in rng.integers(0, len(rounds), len(rounds)).tolist()]
        again = fit([cells[name] for cells in picked for name in policies])
        found = _means(picked, policies, again)
        for name, mean in found.items():
            drawn[name].append(mean / found[best])
    return {name: with_limits(mean / whole[best], drawn[name]) for name, mean in whole.items()}


def _means(
    rounds: Sequence[dict[str, Cell]], policies: Sequence[str], cost: PromptCost
) -> dict[str, float]:
    return {p: float(np.mean([score(cells[p], cost) for cells in rounds])) for p in policies}


def with_limits(middle: float, drawn: Sequence[float] | np.ndarray) -> list[float]:
    """[middle, low, high] with the 95 % interval of the draws."""
    low, high = np.percentile(drawn, [2.5, 97.5])
    return [round(float(v), 4) for v in (middle, low, high)]
