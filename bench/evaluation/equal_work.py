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

from tabletune.core.words import FloatArray

DRAWS = 4000


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

    @property
    def request_steps(self) -> float:
        """Those that draft where there are any: without drafts each token is a request-step."""
        return self.drafts or self.generation_tok


def done_in(
    read: Callable[[], tuple[float, float, float]],
    window_s: float,
    now_s: Callable[[], float],
    sleep: Callable[[float], None],
    poll_s: float = 0.005,
) -> Work:
    """The work of a time that begins and ends as the engine's counters move.

    read: generated tokens, drafts and prompt tokens so far. They move in jumps, once a step.
    """

    def moved() -> tuple[float, FloatArray]:
        before = read()[0]
        while (now := read())[0] == before:
            sleep(poll_s)
        return now_s(), np.array(now)

    begun_s, begun = moved()
    sleep(window_s)
    ended_s, ended = moved()
    return Work(ended_s - begun_s, *(float(v) for v in ended - begun))


def ratio_at_equal_work(ours: Sequence[Work], theirs: Sequence[Work]) -> dict[str, float]:
    """Request-steps a second of `ours` over those of `theirs`, window i of the one beside window i
    of the other, with a 95 % bootstrap interval over pairs.

    Raises:
        ValueError: fewer than three pairs, or not as many of the one as of the other.
    """
    if len(ours) != len(theirs) or len(ours) < 3:
        raise ValueError(
            f"expected three pairs of windows or more, found {len(ours)} and {len(theirs)} "
            "windows; measure more pairs"
        )
    cost_s = np.array([[w.seconds / w.request_steps for w in side] for side in (ours, theirs)])
    prompts = np.array([[w.prompt_tok / w.request_steps for w in side] for side in (ours, theirs)])
    differs_s, differ = cost_s[0] - cost_s[1], prompts[0] - prompts[1]

    def ratio(pick: np.ndarray) -> float:
        y, x = differs_s[pick], differ[pick]
        spread = float(np.var(x))
        slope = float(np.mean((x - x.mean()) * (y - y.mean()))) / spread if spread > 0 else 0.0
        theirs_s = float(cost_s[1][pick].mean())
        return theirs_s / (theirs_s + float(y.mean()) - slope * float(x.mean()))

    rng = np.random.default_rng(1)
    everyone = np.arange(len(ours))
    again = [ratio(rng.choice(everyone, len(everyone))) for _ in range(DRAWS)]
    low, high = np.quantile(again, (0.025, 0.975))
    return {
        "mean": round(ratio(everyone), 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "pairs": len(ours),
    }
