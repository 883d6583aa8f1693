"""Decides whether measured throughput lets a table pass. Pure: windows in, verdict out.

For each concurrency and each policy that the candidate is held against, the ratio of mean
throughputs candidate / other has a bootstrap interval low … high. With bound = 1 − margin:

- *holds* when low ≥ bound: at this confidence the candidate is not worse by the margin;
- *fails* when high < bound: it is;
- *unclear* otherwise. More rounds are then measured for that pair, up to a cap. A pair still
  unclear passes when its point estimate reaches the bound **and** low ≥ bound − `slack`; the
  reasons say that it was unclear. So noise alone neither passes a table that may be far worse
  (low is far below) nor fails a good one before the cap, of rounds or of time, is reached.

Where every step of the candidate and of a fixed length (or the incumbent) used the same draft
length, they are the same thing at this load. Such a pair passes unless it *fails* clearly. Where
the two tables agree at every batch size that the load can show, only one of them is measured:
the ratio is 1 by identity.

No speculation is met *through K = 0*, which as little knows luck of the text: the candidate over
K = 0, read from steps, times K = 0 over the engine without speculation, both read from metrics
pages. The interval is that of the product. Rounds of the latter two in which either was far off
its own median are left out of the ratio: what no text can cause is a stall of the machine.

The candidate is held against *every* fixed length, K = 0 among them, and so against the best.
This avoids choosing a best one first: the largest of several noisy means is too large (the
winner's curse), and a ratio to it too small. What remains of the effect is that the lowest of
several ratios is low by chance; it shrinks with the noise, which is why unclear pairs, and
among them those against a lucky length, get further rounds.

Looking after each batch of rounds makes wrong clear decisions somewhat more likely than one
look would.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tabletune.core.bootstrap import RatioEstimate, Windows, product_interval
from tabletune.measure.measurements import Measurements, Paired
from tabletune.records.policy import (
    CANDIDATE,
    INCUMBENT,
    NO_SPECULATION,
    OFF_BY_METRICS,
    STOCK,
    fixed_length,
    fixed_policy,
    margin_of,
)
from tabletune.records.verdict import Margins, Ratio

Standing = Literal["holds", "unclear", "fails"]
#: A window of a policy that never drafts is the machine's stall, or its recovery from one, when
#: it is off the median of its series by more than this factor.
STALL_FACTOR = 1.4


@dataclass(frozen=True)
class Comparison:
    """Candidate over one policy at one concurrency.

    Attributes:
        windows: windows of the other policy; 0 where it is the candidate itself.
        same_lengths: every step of both used the same draft length, so that a difference is
            noise, or the machine's.
        identical: only one was measured, since the two agree at every batch size that can
            occur at this concurrency, or did at those of the windows that count for both.
        factors: of a ratio that was met through K = 0: the candidate over K = 0 (absent where
            the candidate is K = 0), then K = 0 over the other.
    """

    policy: str
    concurrency: int
    ratio: float
    low: float
    high: float
    bound: float
    windows: int
    same_lengths: bool = False
    identical: bool = False
    factors: tuple[RatioEstimate, ...] = ()

    @property
    def standing(self) -> Standing:
        """See the module."""
        if self.low >= self.bound:
            return "holds"
        return "fails" if self.high < self.bound else "unclear"

    def passes(self, slack: float) -> bool:
        """The decision once no further rounds are measured."""
        if self.standing != "unclear" or self.same_lengths:
            return self.standing != "fails"
        return self.ratio >= self.bound and self.low >= self.bound - slack

    def record(self) -> Ratio:
        """For the verdict."""
        return Ratio(
            policy=self.policy,
            concurrency=self.concurrency,
            ratio=self.ratio,
            low=max(self.low, 0.0),
            high=self.high,
        )


@dataclass(frozen=True)
class Judgement:
    """The outcome over all pairs."""

    passed: bool
    reasons: tuple[str, ...]
    ratios: tuple[Ratio, ...]


def compare(
    measurements: Measurements,
    concurrency: int,
    margins: Margins,
    rng: np.random.Generator,
) -> list[Comparison]:
    """The candidate against every policy measured at `concurrency` that it is held against."""
    if measurements.of(CANDIDATE, concurrency) is None:
        return []
    found: list[Comparison] = []
    for policy in sorted(measurements.policies(concurrency), key=_in_order):
        margin = margin_of(policy, margins)
        if margin is None:
            continue
        bound = 1 - margin
        if measurements.measured_as(policy, concurrency) == CANDIDATE:
            one = Comparison(policy, concurrency, 1, 1, 1, bound, 0, True, identical=True)
            found.append(one)
        elif policy != NO_SPECULATION:
            found.append(_by_windows(measurements, policy, concurrency, bound, margins, rng))
        elif measurements.of(OFF_BY_METRICS, concurrency) is not None:
            found.append(_through_off(measurements, concurrency, bound, margins, rng))
    return found


def undisturbed(pair: Paired) -> Paired:
    """The windows of two policies that never draft, without those in which the machine stalled.

    Of paired windows both go. All of them stay where fewer than two would be left.
    """
    top, bottom = _near_median(pair.first), _near_median(pair.second)
    if pair.paired:
        top = bottom = top & bottom
    if min(len(top), len(bottom)) < 2:
        return pair
    first = [rate for i, rate in enumerate(pair.first) if i in top]
    return Paired(first, [rate for i, rate in enumerate(pair.second) if i in bottom], pair.paired)


def _near_median(rates: Sequence[float]) -> set[int]:
    median = float(np.median(rates))
    low, high = median / STALL_FACTOR, median * STALL_FACTOR
    return {i for i, rate in enumerate(rates) if low <= rate <= high}


def _in_order(policy: str) -> tuple[bool, int, str]:
    """Fixed lengths first, in rising order."""
    length = fixed_length(policy)
    return length is None, length or 0, policy


def _by_windows(
    measurements: Measurements,
    policy: str,
    concurrency: int,
    bound: float,
    margins: Margins,
    rng: np.random.Generator,
) -> Comparison:
    pair = Windows(*measurements.pair(CANDIDATE, policy, concurrency))
    estimate = product_interval([pair], rng=rng, confidence=margins.confidence)
    return Comparison(
        policy,
        concurrency,
        estimate.ratio,
        estimate.low,
        estimate.high,
        bound,
        len(np.asarray(pair.denominator)),
        measurements.same_lengths(CANDIDATE, policy, concurrency),
    )


def _through_off(
    measurements: Measurements,
    concurrency: int,
    bound: float,
    margins: Margins,
    rng: np.random.Generator,
) -> Comparison:
    last = undisturbed(measurements.pair(OFF_BY_METRICS, NO_SPECULATION, concurrency))
    parts = [Windows(*last)]
    if measurements.measured_as(fixed_policy(0), concurrency) != CANDIDATE:
        parts.insert(0, Windows(*measurements.pair(CANDIDATE, fixed_policy(0), concurrency)))
    whole = product_interval(parts, rng=rng, confidence=margins.confidence)
    return Comparison(
        NO_SPECULATION,
        concurrency,
        whole.ratio,
        whole.low,
        whole.high,
        bound,
        len(last.second),
        factors=tuple(
            product_interval([part], rng=rng, confidence=margins.confidence) for part in parts
        ),
    )


def judge(comparisons: Iterable[Comparison], slack: float) -> Judgement:
    """Pass or fail, with a reason for each concurrency. Raises ValueError for no comparison."""
    every = list(comparisons)
    if not every:
        raise ValueError("expected at least one comparison, found none; measure a policy first")
    reasons: list[str] = []
    for concurrency in sorted({c.concurrency for c in every}):
        here = [c for c in every if c.concurrency == concurrency]
        failing = [c for c in here if not c.passes(slack)]
        reasons += [_failure(c, slack) for c in failing]
        if not failing:
            reasons.append(_success(concurrency, here))
        reasons += [
            f"concurrency {c.concurrency}: the comparison with {words(c.policy)} stayed unclear "
            f"after {c.windows} windows ({_interval(c)}) and was decided by "
            + ("both using the same draft lengths" if c.same_lengths else "its mean")
            for c in here
            if c.standing == "unclear" and c.passes(slack)
        ]
        reasons += [_through(c) for c in here if c.factors]
    passed = all(c.passes(slack) for c in every)
    return Judgement(passed, tuple(reasons), tuple(c.record() for c in every))


def words(policy: str) -> str:
    """A policy in words."""
    length = fixed_length(policy)
    if length is not None:
        return "draft off (K = 0)" if length == 0 else f"fixed draft length {length}"
    return {
        INCUMBENT: "the incumbent table",
        NO_SPECULATION: "an engine without speculation",
        STOCK: "the stock engine",
    }.get(policy, policy)


def _interval(c: Comparison) -> str:
    return f"{c.ratio:.1%}, {c.low:.1%} to {c.high:.1%}"


def _failure(c: Comparison, slack: float) -> str:
    start = f"concurrency {c.concurrency}: {_interval(c)} of the throughput of {words(c.policy)}"
    if c.standing == "fails" or c.ratio < c.bound:
        clear = "" if c.standing == "fails" else ", though not clearly"
        same = ", with the same draft lengths: something else differs" if c.same_lengths else ""
        return f"{start}, below the {c.bound:.0%} asked for{clear}{same}"
    return (
        f"{start}: too noisy to exclude a loss beyond {1 - c.bound + slack:.0%} after {c.windows} "
        "windows; validate again on a quieter machine or with more rounds"
    )


def _through(c: Comparison) -> str:
    """How a ratio was obtained that no one instrument measured."""
    *first, last = (f"{f.ratio:.1%} ({f.low:.1%} to {f.high:.1%})" for f in c.factors)
    start = f"concurrency {c.concurrency}: the ratio to {words(c.policy)} is "
    product = f"the table over K = 0 by steps, {first[0]}, times " if first else ""
    return f"{start}{product}K = 0 over it by metrics, {last}"


def _success(concurrency: int, here: list[Comparison]) -> str:
    lowest = min(here, key=lambda c: (c.ratio, c.identical))
    text = (
        f"concurrency {concurrency}: the table is not worse than any policy beyond its margin; "
        f"the closest is {words(lowest.policy)}: {_interval(lowest)} of its throughput"
    )
    identical = [words(c.policy) for c in here if c.identical]
    if identical:
        text += f"; here the table is {' and '.join(identical)} itself: a ratio of 1, not measured"
    same = [words(c.policy) for c in here if c.same_lengths and not c.identical]
    return text + (
        f"; the table used the same lengths here as {' and '.join(same)}" if same else ""
    )
