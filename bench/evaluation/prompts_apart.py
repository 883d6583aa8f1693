"""Scores at equal shares of prompts, and windows pooled by draft length.

A step that holds a prompt takes two or three times as long as one that does not, and how many
fall into a window of a second is luck. Over all windows of a load the model

    seconds = a_policy · steps + extra · prompt steps

is fitted by least squares: a time per step for each policy, one extra time for all. A window's
score is then what it would put out with the load's mean number of prompt steps for each token:

    score = tokens per step / (a + extra · prompt steps per token · tokens per step),

with a = (seconds - extra · prompt steps) / steps of the window itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.evaluation.cells import Cell

#: A window counts for a draft length if all but this share of its steps ran it.
OTHER_STEPS = 0.005


@dataclass(frozen=True)
class PromptCost:
    """extra_s: of a step with a prompt. per_tok: such steps per output token. residual: standard
    deviation of what the model leaves, as a share of the windows' seconds."""

    extra_s: float
    per_tok: float
    residual: float


def fit(windows: Sequence[Cell]) -> PromptCost:
    """The model over all windows of a load; their `policy` tells them apart."""
    policies = sorted({window["policy"] for window in windows})
    features = np.zeros((len(windows), len(policies) + 1))
    for row, window in enumerate(windows):
        features[row, policies.index(window["policy"])] = window["steps"]
        features[row, -1] = window["prefill_steps"]
    seconds = np.array([window["seconds"] for window in windows])
    solved = np.linalg.lstsq(features, seconds, rcond=None)[0]
    tokens = sum(window["output_tok"] for window in windows)
    return PromptCost(
        extra_s=max(0.0, float(solved[-1])),
        per_tok=sum(window["prefill_steps"] for window in windows) / tokens,
        residual=float(np.std((seconds - features @ solved) / seconds)),
    )


def score(window: Cell, cost: PromptCost) -> float:
    """Output tokens per second at the load's share of prompts, for one window."""
    steadied = window["steadied_tok_s"]
    rate = window["rate_tok_s"] if steadied is None else steadied
    tokens = rate * window["seconds"] / window["steps"]
    step_s = (window["seconds"] - cost.extra_s * window["prefill_steps"]) / window["steps"]
    return float(tokens / (step_s + cost.extra_s * cost.per_tok * tokens))


def by_length(windows: Sequence[Cell], cost: PromptCost) -> dict[int, np.ndarray]:
    """Scores of the windows that ran a single draft length, whatever policy chose it."""
    found: dict[int, list[float]] = {}
    for window in windows:
        length, share = max(window["lengths"].items(), key=lambda item: item[1])
        if share >= 1 - OTHER_STEPS:
            found.setdefault(int(length), []).append(score(window, cost))
    return {length: np.array(scores) for length, scores in sorted(found.items())}


def shares_of_best(
    scores: dict[int, np.ndarray], rng: np.random.Generator, resamples: int = 4000
) -> dict[int, list[float]]:
    """[mean, low, high] of each length's mean over that of the best one; windows drawn anew."""
    best = max(scores, key=lambda length: float(scores[length].mean()))

    def drawn(values: np.ndarray) -> np.ndarray:
        return values[rng.integers(0, len(values), (resamples, len(values)))].mean(axis=1)

    whole, found = drawn(scores[best]), dict[int, list[float]]()
    for length, values in scores.items():
        ratios = np.ones(resamples) if length == best else drawn(values) / whole
        low, high = np.percentile(ratios, [2.5, 97.5])
        middle = float(values.mean() / scores[best].mean())
        found[length] = [round(float(v), 4) for v in (middle, low, high)]
    return found
