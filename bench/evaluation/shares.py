"""From rounds of windows to shares of the best fixed length, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.evaluation import prompts_apart
from bench.evaluation.cells import Cell
from bench.evaluation.prompts_apart import PromptCost
from bench.evaluation.window import score_of

RESAMPLES = 4000
#: What the result file keeps of each window, so that other figures can be made from it.
KEPT = (
    *("policy", "boot", "seconds", "steps", "prefill_steps", "output_tok", "rate_tok_s"),
    *("steadied_tok_s", "decode_tok_s", "user_tok_s", "mean_batch_size", "mean_step_time_s"),
    *("ungraphed_steps", "failed", "lengths"),
)
BOOTSTRAP_SEED = 11


def best_fixed(scores: dict[str, np.ndarray]) -> str:
    """The fixed length with the highest mean. Chosen after the fact, so that it is favoured by
    chance, if by anything.

    Raises:
        ValueError: there is none.
    """
    fixed = [name for name in scores if name.startswith("fixed ")]
    if not fixed:
        raise ValueError("expected windows of fixed lengths, found none; add `fixed`")
    return max(fixed, key=lambda name: float(scores[name].mean()))


def interval(part: np.ndarray, whole: np.ndarray, rng: np.random.Generator) -> list[float]:
    """Mean over mean, and its 95 % interval over rounds drawn anew."""
    picks = rng.integers(0, len(part), (RESAMPLES, len(part)))
    ratios = part[picks].mean(axis=1) / whole[picks].mean(axis=1)
    return prompts_apart.with_limits(float(part.mean() / whole.mean()), ratios)


def summarise_load(
    rounds: Sequence[dict[str, Cell]], policies: Sequence[str], open_load: bool
) -> dict[str, Any]:
    """One load's figures: each policy's throughput and its share of the best fixed length and
    of the tuned table. `rounds`: whole rounds, at least one."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    scores = {
        name: np.array([score_of(cells[name], open_load) for cells in rounds]) for name in policies
    }
    decode = {
        name: np.array([cells[name]["decode_tok_s"] for cells in rounds]) for name in policies
    }
    best = best_fixed(scores)
    found: dict[str, Any] = {}
    for name in policies:
        cells = [cells[name] for cells in rounds]
        found[name] = {
            "score_tok_s": _mean(scores[name]),
            "by_round_tok_s": [round(float(v), 2) for v in scores[name]],
            "of_best_fixed": interval(scores[name], scores[best], rng),
            "of_tuned": interval(scores[name], scores["tuned table"], rng),
            "decode_of_best_fixed": interval(decode[name], decode[best], rng),
            "rate_tok_s": _mean([cell["rate_tok_s"] for cell in cells]),
            "user_tok_s": _mean([cell["user_tok_s"] for cell in cells]),
            "mean_batch_size": _mean([cell["mean_batch_size"] for cell in cells]),
            "mean_step_time_ms": _mean([1e3 * cell["mean_step_time_s"] for cell in cells], 3),
            "ungraphed_steps": sum(cell["ungraphed_steps"] for cell in cells),
            "steps": sum(cell["steps"] for cell in cells),
            "lengths": _mean_shares([cell["lengths"] for cell in cells]),
        }
    windows = [cells[name] | {"policy": name} for cells in rounds for name in policies]
    equal = {} if open_load else _at_equal_prompts(rounds, policies, found, windows, rng)
    boots = sorted({cell["boot"] for cells in rounds for cell in cells.values()})
    return {
        "rounds": len(rounds),
        "boots": len(boots),
        "best_fixed": best,
        "score": "tokens per request-second" if open_load else "output tokens per second",
        **equal,
        "policies": found,
        "windows": [
            {name: window[name] for name in KEPT if name in window}
            | {"round": number // len(policies)}
            for number, window in enumerate(windows)
        ],
    }


def _at_equal_prompts(
    rounds: Sequence[dict[str, Cell]],
    policies: Sequence[str],
    found: dict[str, Any],
    windows: Sequence[Cell],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """See prompts_apart.py. Adds to what was found of each policy; returns the load's facts."""
    cost = prompts_apart.fit(windows)
    scores = {
        name: np.array([prompts_apart.score(cells[name], cost) for cells in rounds])
        for name in policies
    }
    best = best_fixed(scores)
    shares = prompts_apart.shares_of_policy(rounds, policies, best, cost, rng)
    for name in policies:
        found[name]["at_equal_prompts"] = shares[name]
    return {
        "best_fixed_at_equal_prompts": best,
        "prompt_steps": _prompt_facts(cost),
        "by_length": _by_length(windows, cost, rng),
    }


def _prompt_facts(cost: PromptCost) -> dict[str, Any]:
    return {
        "extra_ms": round(1e3 * cost.extra_s, 3),
        "extra_ms_by_length": {str(k): round(1e3 * s, 3) for k, s in cost.of_length.items()},
        "per_1000_tok": round(1e3 * cost.per_tok, 4),
        "residual": round(cost.residual, 4),
    }


def _by_length(
    windows: Sequence[Cell], cost: PromptCost, rng: np.random.Generator
) -> dict[str, dict[str, Any]]:
    scores = prompts_apart.by_length(windows, cost)
    if not scores:
        return {}
    shares = prompts_apart.shares_of_best(windows, cost, rng)
    return {
        str(length): {
            "windows": len(values),
            "score_tok_s": _mean(values),
            "of_best": shares[length],
        }
        for length, values in scores.items()
    }


def _mean(values: Sequence[float] | np.ndarray, digits: int = 2) -> float:
    return round(float(np.mean(values)), digits)


def _mean_shares(shares: Sequence[dict[str, float]]) -> dict[str, float]:
    lengths = sorted({length for share in shares for length in share}, key=int)
    return {k: round(float(np.mean([s.get(k, 0.0) for s in shares])), 4) for k in lengths}
