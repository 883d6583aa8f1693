"""Two sides' windows compared at equal work, from counters alone.

What a window puts out depends on luck: how many guesses are accepted, and how many prompts fall
into it, each of which holds all the others up. So work is counted in request-steps, of which the
luck of acceptance changes nothing, and the prompts are priced: over all pairs, the difference in
seconds per request-step is a straight line of the difference in prompts per request-step (least
squares). Its value at no difference in prompts is what the sides themselves differ by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tabletune.core.quantiles import student_halfwidth
from tabletune.core.words import FloatArray
from tabletune.measure.metrics import Counters

LEAST_PAIRS = 6
MOVES_WITHIN_S = 60.0


@dataclass(frozen=True)
class Work:
    """What was done in a time. prompt_tok stands for the prompts: those are of about one length.

    drafts: request-steps with a draft; 0 where nothing is drafted.
    """

    seconds: float
    generation_tok: float
    drafts: float
    prompt_tok: float

    @property
    def rate_tok_s(self) -> float:
        return self.generation_tok / self.seconds


def done_in(
    read: Callable[[], Counters],
    window_s: float,
    now_s: Callable[[], float],
    sleep: Callable[[float], None],
    poll_s: float = 0.005,
) -> Work:
    """The work of a time that begins and ends as the engine's counters move.

    read: the counters so far. They move in jumps, once a step.

    Raises:
        MetricsError: a counter fell.
        TimeoutError: they do not move for `MOVES_WITHIN_S`.
    """

    def moved() -> tuple[float, Counters]:
        before, until_s = read().generation_tok, now_s() + MOVES_WITHIN_S
        while (now := read()).generation_tok == before:
            if now_s() > until_s:
                raise TimeoutError(
                    f"expected the engine to put out tokens, found none in {MOVES_WITHIN_S:.0f} s; "
                    "see whether its requests still run, and its log"
                )
            sleep(poll_s)
        return now_s(), now

    begun_s, begun = moved()
    sleep(window_s)
    ended_s, ended = moved()
    done = ended - begun
    return Work(ended_s - begun_s, done.generation_tok, done.drafts, done.prompt_tok)


def ratio_at_equal_work(ours: Sequence[Work], theirs: Sequence[Work]) -> dict[str, float]:
    """Request-steps a second of `ours` over those of `theirs`, window i of the one beside window i
    of the other, with the 95 % Student interval of the line's value at no difference.

    Both must draft alike: a request-step without a draft is not counted where others have one.

    Raises:
        ValueError: fewer than `LEAST_PAIRS`, or not as many of the one as of the other.
    """
    if len(ours) != len(theirs) or len(ours) < LEAST_PAIRS:
        raise ValueError(
            f"expected {LEAST_PAIRS} pairs of windows or more, found {len(ours)} and "
            f"{len(theirs)} windows; measure more pairs"
        )
    # Without drafts each token is a request-step. One unit for all windows.
    drafting = all(work.drafts > 0 for work in (*ours, *theirs))

    def columns(side: Sequence[Work]) -> tuple[FloatArray, FloatArray]:
        steps = np.array([w.drafts if drafting else w.generation_tok for w in side])
        return (
            np.array([w.seconds for w in side]) / steps,
            np.array([w.prompt_tok for w in side]) / steps,
        )

    (ours_s, our_prompts), (theirs_s, their_prompts) = columns(ours), columns(theirs)
    y, x = ours_s - theirs_s, our_prompts - their_prompts
    differ = float(((x - x.mean()) ** 2).sum())
    # Prompts that differ by rounding alone tell no price.
    told = differ > 1e-9 * float((our_prompts**2 + their_prompts**2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / differ if told else 0.0
    at_none_s = float(y.mean()) - slope * float(x.mean())
    freedom = len(y) - (2 if told else 1)
    left = y - at_none_s - slope * x
    away = float(x.mean()) ** 2 / differ if told else 0.0
    error_s = np.sqrt(float((left**2).sum()) / freedom * (1 / len(y) + away))
    half_s = student_halfwidth(0.95, freedom) * float(error_s)
    mean_s = float(theirs_s.mean())
    return {
        "mean": round(mean_s / (mean_s + at_none_s), 4),
        "low": round(mean_s / (mean_s + at_none_s + half_s), 4),
        "high": round(mean_s / (mean_s + at_none_s - half_s), 4),
        "pairs": len(y),
    }
