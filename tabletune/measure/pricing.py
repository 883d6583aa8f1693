"""Windows of a validation with the steps that hold prompts priced alike (core/prompt_price.py).

All windows of one load that were read from engine steps set the price, whichever policy they are
of; each policy keeps the number of such steps that its own windows had. Where some window has too
few steps away from prompts to tell what those take, or where no price makes windows of one policy
agree better, the load's windows count as measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tabletune.core.bootstrap import Windows
from tabletune.core.prompt_price import PromptedWindow, PromptPrice, price, prices_drawn, rate_at
from tabletune.measure.steps import StepBatch

#: A window tells what a step away from prompts takes by so many of them, and by this share of its
#: steps, or more.
LEAST_PLAIN_STEPS = 20
LEAST_PLAIN_SHARE = 0.1
#: Windows of one policy must scatter by this share of the variance that they have as measured, or
#: less, for a price to be used.
WORTH_VARIANCE = 0.7
#: How often the price is drawn anew, to see how well it is known.
DRAWS = 200


def prompted_window(steps: StepBatch, lengths: frozenset[int]) -> PromptedWindow | None:
    """The two parts of a window; None where its steps do not tell them.

    Args:
        steps: the window's, the first of which only marks its begin.
        lengths: the draft lengths that they had, but for stray ones.
    """
    after = np.arange(len(steps)) > 0
    counted = steps.select(after & np.isfinite(steps.interval_s))
    prompts = counted.prefill_requests > 0
    # The last step may come right before a prompt: nobody knows.
    before = np.append(prompts[1:], True)[: len(prompts)]
    plain = ~prompts & ~before
    if plain.sum() < max(LEAST_PLAIN_STEPS, LEAST_PLAIN_SHARE * len(counted)):
        return None
    return PromptedWindow(
        tokens=float(counted.output_tok.sum()),
        seconds=float(counted.interval_s.sum()),
        steps=len(counted),
        prompt_steps=int(prompts.sum()),
        plain_step_s=float(counted.interval_s[plain].mean()),
        length=next(iter(lengths)) if len(lengths) == 1 else None,
    )


@dataclass(frozen=True)
class Pricing:
    """The price at one load, and how it comes out of windows drawn anew."""

    price: PromptPrice
    drawn: tuple[PromptPrice, ...]

    def windows(
        self,
        first: Sequence[PromptedWindow],
        second: Sequence[PromptedWindow],
        paired: bool,
    ) -> tuple[Windows, float]:
        """Rates of two policies' windows at the price; and what the doubt about the price leaves
        open of their ratio, as a standard error of its logarithm."""

        def rates(at: PromptPrice) -> tuple[list[float], list[float]]:
            return [rate_at(w, at) for w in first], [rate_at(w, at) for w in second]

        logs = [np.log(np.mean(top) / np.mean(bottom)) for top, bottom in map(rates, self.drawn)]
        return Windows(*rates(self.price), paired), float(np.std(logs))


def pricing_of(
    series: Sequence[Sequence[PromptedWindow | None]], rng: np.random.Generator
) -> Pricing | None:
    """Of the windows of a load that were read from steps; None where they stay as measured.

    That is where some window does not tell its parts, where no prompts were met, and where a
    price does not make windows of one policy agree better: steps away from prompts are fewer than
    all steps, so that where prompts cost little they tell less than all.

    Args:
        series: one for each policy.
    """
    told = [[window for window in one if window is not None] for one in series]
    known = [window for one in told for window in one]
    if len(known) < sum(map(len, series)) or not any(window.prompt_steps for window in known):
        return None
    found = price(known)
    measured = sum(_squares([w.tokens / w.seconds for w in one]) for one in told)
    priced = sum(_squares([rate_at(w, found) for w in one]) for one in told)
    if not priced < WORTH_VARIANCE * measured:
        return None
    return Pricing(found, tuple(prices_drawn(known, rng, DRAWS)))


def _squares(rates: Sequence[float]) -> float:
    """Sum of squares of the logarithms around their mean; 0 for a single one."""
    logs = np.log(rates)
    return float(((logs - logs.mean()) ** 2).sum()) if len(rates) > 1 else 0.0
