"""Scores with prompts priced alike, and windows pooled by draft length.

A step that holds a prompt takes two or three times as long as one that does not. How many of them
fall into a window is luck, and how long each takes depends on the host: on an H200 they took 14 to
28 ms in windows of one draft length, within minutes, and that is most of what windows differ by.
So a window tells what a step without a prompt takes, all windows of a load together what a prompt
adds:

    extra = sum of (seconds - steps · plain step) / sum of prompt steps,
    score = 1 / (1 / tokens per second away from prompts + extra · prompt steps per token),

the plain step being that of the window's steps which neither hold a prompt nor come right before
one. A draft length has an extra time of its own (its steps with prompts may lack a graph, say) as
far as its windows differ from all by more than they differ among themselves: it is shrunk to
that of all (positive part of James and Stein 1961).
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
    """extra_s: of a step with a prompt. of_length: the same by draft length, where windows told.
    per_tok: such steps per output token. residual: standard deviation of the extra time from
    window to window of a length, as a share of it; 0 without such steps."""

    extra_s: float
    of_length: dict[int, float]
    per_tok: float
    residual: float

    def extra_of(self, window: Cell) -> float:
        """Of the draft lengths that a window's steps had."""
        shares = window["lengths"].items()
        return float(sum(s * self.of_length.get(int(k), self.extra_s) for k, s in shares))


def fit(windows: Sequence[Cell]) -> PromptCost:
    """What prompts cost over all windows of a load."""
    told = [w for w in windows if w["prefill_steps"] > 0 and w["decode_tok_s"] > 0]
    if not told:
        return PromptCost(0.0, {}, 0.0, 0.0)
    prompts = np.array([window["prefill_steps"] for window in told], dtype=np.float64)
    over_s = np.array([w["seconds"] - w["steps"] * _plain_step_s(w) for w in told]) / prompts
    whole_s = max(0.0, float(np.average(over_s, weights=prompts)))
    lengths = [only_length(window) for window in told]
    groups = {k: np.array([n == k for n in lengths]) for k in set(lengths) if k is not None}
    own_s = {k: float(np.average(over_s[g], weights=prompts[g])) for k, g in groups.items()}
    middle_s = np.array([whole_s if k is None else own_s[k] for k in lengths])
    freedom = max(1, len(told) - len(groups))
    variance_s2 = float(((over_s - middle_s) ** 2).sum() / freedom)
    of_length: dict[int, float] = {}
    for length, group in groups.items():
        apart_s = own_s[length] - whole_s
        noise_s2 = variance_s2 / int(group.sum())
        kept = max(0.0, 1.0 - noise_s2 / apart_s**2) if apart_s else 0.0
        of_length[length] = max(0.0, whole_s + kept * apart_s)
    return PromptCost(
        extra_s=whole_s,
        of_length=dict(sorted(of_length.items())),
        per_tok=sum(w["prefill_steps"] for w in windows) / sum(w["output_tok"] for w in windows),
        residual=float(np.sqrt(variance_s2)) / whole_s if whole_s else 0.0,
    )


def score(window: Cell, cost: PromptCost) -> float:
    """Output tokens per second at the load's price and share of prompts, for one window; as
    measured where every step of it was near a prompt."""
    if window["decode_tok_s"] <= 0:
        return _rate_tok_s(window)
    return float(1 / (1 / window["decode_tok_s"] + cost.extra_of(window) * cost.per_tok))


def only_length(window: Cell) -> int | None:
    """The single draft length that a window ran; None where it ran several."""
    length, share = max(window["lengths"].items(), key=lambda item: item[1])
    return int(length) if share >= 1 - OTHER_STEPS else None


def _rate_tok_s(window: Cell) -> float:
    steadied = window["steadied_tok_s"]
    return float(window["rate_tok_s"] if steadied is None else steadied)


def _plain_step_s(window: Cell) -> float:
    tokens = _rate_tok_s(window) * window["seconds"] / window["steps"]
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
