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
from bench.evaluation.window import score_of

RESAMPLES = 1000
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
    freedom = len(told) - len(groups)
    # One window a length tells nothing of what windows differ by: then all cost the same.
    variance_s2 = float(((over_s - middle_s) ** 2).sum() / freedom) if freedom > 0 else np.inf
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
        residual=float(np.sqrt(variance_s2)) / whole_s if whole_s and freedom > 0 else 0.0,
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
