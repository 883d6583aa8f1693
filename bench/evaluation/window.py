"""One window: what the engine's recorded steps say of a policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tabletune.measure.steps import StepBatch

LEAST_STEPS = 3
"""The first step only marks a window's begin, and one alone is no rate."""


class EmptyWindowError(RuntimeError):
    """A window in which the engine did nothing.

    Attributes: `policy`, `steps`.
    """

    def __init__(self, policy: str, steps: int) -> None:
        self.policy, self.steps = policy, steps
        super().__init__(
            f"expected engine steps under {policy}, found {steps} in its window; see whether the "
            "load still runs, and the engine's log"
        )


@dataclass(frozen=True)
class Window:
    """Figures of one window.

    rate_tok_s: output tokens over time, in the engine's clock.
    steadied_tok_s: the same without the luck of acceptance: accepted guesses are replaced by
        those expected of the guesses made, drafted_i × S_i. None without a known survival.
    decode_tok_s: the same over steps that neither hold a prompt nor come right before one.
    user_tok_s: tokens over request-seconds, what each request sees (steadied if possible).
    lengths: share of the steps by the draft length chosen.
    """

    seconds: float
    steps: int
    output_tok: int
    rate_tok_s: float
    steadied_tok_s: float | None
    decode_tok_s: float
    user_tok_s: float
    mean_batch_size: float
    mean_step_time_s: float
    prefill_steps: int
    accepted_tok: int
    drafted_tok: int
    ungraphed_steps: int
    lost: int
    lengths: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def window_of(policy: str, steps: StepBatch, survival: tuple[float, ...] | None) -> Window:
    """The figures of a window's steps; the first only marks its begin.

    Raises:
        EmptyWindowError: fewer than three steps.
    """
    if len(steps) < LEAST_STEPS:
        raise EmptyWindowError(policy, len(steps))
    counted = np.arange(len(steps)) > 0
    steps = steps.select(counted)
    interval_s = np.where(np.isfinite(steps.interval_s), steps.interval_s, 0.0)  # idle: no work
    seconds = float(interval_s.sum())
    tokens = _expected_tok(steps, survival)
    rate = float(steps.output_tok.sum()) / seconds
    decoding = away_from_prompts(steps) & (interval_s > 0)
    decode_s = float(interval_s[decoding].sum())
    request_s = float((interval_s * steps.batch_size).sum())
    chosen, uses = np.unique(steps.draft_length, return_counts=True)
    shares = uses / uses.sum()
    return Window(
        seconds=seconds,
        steps=len(steps),
        output_tok=int(steps.output_tok.sum()),
        rate_tok_s=rate,
        steadied_tok_s=None if survival is None else float(tokens.sum()) / seconds,
        decode_tok_s=float(tokens[decoding].sum()) / decode_s if decode_s else 0.0,
        user_tok_s=float(tokens.sum()) / request_s,
        mean_batch_size=float(steps.batch_size.mean()),
        mean_step_time_s=seconds / max(1, int((interval_s > 0).sum())),
        prefill_steps=int((steps.prefill_requests > 0).sum()),
        accepted_tok=int(steps.accepted_through.sum()),
        drafted_tok=int(steps.drafted_tok.sum()),
        ungraphed_steps=int((steps.graph_mode == 0).sum()),
        lost=steps.lost,
        lengths={str(k): round(float(s), 4) for k, s in zip(chosen, shares, strict=True)},
    )


def away_from_prompts(steps: StepBatch) -> np.ndarray:
    """Which steps neither hold a prompt nor come right before one, bool[n]: a step right before a
    prompt takes longer too, the prompt is prepared during it. Of the last one that is not known."""
    without = steps.prefill_requests == 0
    return without & np.append(without[1:], False)


def _expected_tok(steps: StepBatch, survival: tuple[float, ...] | None) -> np.ndarray:
    """Output tokens of each step, float64[n]; with a known survival, the accepted guesses
    replaced by those expected of the guesses that were verified."""
    tokens = steps.output_tok.astype(np.float64)
    if survival is None:
        return tokens
    positions = min(len(survival), steps.drafted_through.shape[1])
    expected = steps.drafted_through[:, :positions] @ np.array(survival[:positions])
    return tokens - steps.accepted_through.sum(axis=1) + expected


def score_of(cell: dict[str, Any], open_load: bool) -> float:
    """What policies are compared by. Under arrivals that do not wait, every policy puts out
    what arrives; there it is how fast each request gets its tokens."""
    if open_load:
        return float(cell["user_tok_s"])
    steadied = cell["steadied_tok_s"]
    return float(cell["rate_tok_s"] if steadied is None else steadied)
