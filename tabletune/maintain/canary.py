"""Whether engines with a new table do as well as those with the old one. Pure.

Throughput depends on the load, which differs between engines. So speeds are compared at equal
batch sizes: each engine's output tokens per request and second, over what the others reach
together at that batch size; an engine's score is the mean of the logarithms of that, weighted
by its own steps. Engines are the units of the interval, because requests of one engine
resemble each other and machines differ.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tabletune.core.quantiles import student_halfwidth
from tabletune.maintain.policies import CanaryPolicy
from tabletune.records.snapshot import LiveSnapshot

#: Confidence of a look before the time is up: there are many such looks.
EARLY_CONFIDENCE: Final = 0.999
#: Batch sizes up to here are compared one by one, larger ones in groups of an eighth.
EXACT_SIZES: Final = 16
#: An engine with fewer steps than this share of `least_steps` does not count.
LEAST_SHARE: Final = 0.1


@dataclass(frozen=True)
class Use:
    """Steps, seconds and output tokens of one batch size."""

    steps: float
    seconds: float
    output_tok: float


@dataclass(frozen=True)
class EngineWindow:
    """What one engine did between two snapshots.

    `uses` by batch size. `falls`: times it fell back to its boot table.
    """

    run_id: str
    table_version: str
    uses: Mapping[int, Use]
    falls: int = 0

    @property
    def steps(self) -> float:
        return sum(use.steps for use in self.uses.values())


@dataclass(frozen=True)
class CanaryJudgement:
    """The outcome with its reasons; ratio of canaries to others with its interval, if known."""

    outcome: Literal["go on", "promote", "back"]
    reasons: tuple[str, ...]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


def engine_window(before: LiveSnapshot | None, after: LiveSnapshot) -> EngineWindow:
    """What an engine did since `before`; since its start where there is none of this run.

    A window in which the engine got another table belongs to neither: its `table_version` is
    empty.

    Raises:
        ValueError: the snapshots are of two engine runs.
    """
    uses = {one.batch_size: one for one in after.batch_sizes}
    old = {} if before is None else {one.batch_size: one for one in before.batch_sizes}
    falls = after.decisions.falls
    if before is not None:
        if before.engine.run_id != after.engine.run_id:
            raise ValueError(
                f"expected two snapshots of one engine run, found {before.engine.run_id!r} and "
                f"{after.engine.run_id!r}"
            )
        falls -= before.decisions.falls
    window: dict[int, Use] = {}
    for size, now in uses.items():
        past = old.get(size)
        use = Use(
            now.steps - (past.steps if past else 0),
            now.seconds - (past.seconds if past else 0.0),
            now.output_tok - (past.output_tok if past else 0),
        )
        if use.steps > 0 and use.seconds > 0 and use.output_tok > 0:
            window[size] = use
    same = before is None or before.table_version == after.table_version
    version = after.table_version if same else ""
    return EngineWindow(after.engine.run_id, version, window, max(0, falls))


def renewed(
    before: Mapping[str, LiveSnapshot], now: Iterable[LiveSnapshot]
) -> dict[str, LiveSnapshot]:
    """Where each engine's window begins, by run id: where it did, or now, where the engine got
    another table since or is new.

    To be asked before each look. A candidate reaches engines only some polls after it was put
    on the channel; without this no window of a canary would ever be of one table.
    """
    begins: dict[str, LiveSnapshot] = {}
    for one in now:
        earlier = before.get(one.engine.run_id)
        same = earlier is not None and earlier.table_version == one.table_version
        begins[one.engine.run_id] = earlier if earlier is not None and same else one
    return begins


def judge(
    policy: CanaryPolicy,
    candidate: str,
    canaries: Sequence[EngineWindow],
    others: Sequence[EngineWindow],
    minutes: float,
) -> CanaryJudgement:
    """Decide about a canary that has been there for `minutes`.

    Args:
        candidate: the table version on the canary channel; engines that do not have it (yet)
            do not count as canaries; those of the others that have it do not count either.
    """
    on_it = [one for one in canaries if one.table_version == candidate]
    fallen = [one.run_id for one in on_it if one.falls]
    if fallen:
        reason = f"canary engines fell back to their boot table: {', '.join(fallen[:5])}"
        return CanaryJudgement("back", (reason,))
    least = policy.least_steps * LEAST_SHARE
    left = [one for one in on_it if one.steps >= least]
    right = [one for one in others if one.table_version != candidate and one.steps >= least]
    lack = _lack(policy, left, right)
    if lack:
        if minutes < policy.most_minutes:
            return CanaryJudgement("go on", (lack,))
        reason = f"{lack} in {minutes:.0f} minutes; the policy says {policy.without_traffic!r}"
        return CanaryJudgement(policy.without_traffic, (reason,))
    return _by_ratio(policy, left, right, minutes)


def _by_ratio(
    policy: CanaryPolicy,
    canaries: Sequence[EngineWindow],
    others: Sequence[EngineWindow],
    minutes: float,
) -> CanaryJudgement:
    in_time, over = minutes >= policy.minutes, minutes >= policy.most_minutes
    confidence = policy.confidence if in_time else max(policy.confidence, EARLY_CONFIDENCE)
    ratio, low, high = compare(canaries, others, confidence)
    bound = 1 - policy.margin
    words = f"{ratio:.3f} ({low:.3f} … {high:.3f}) of the others' speed, {bound:.3f} wanted"
    outcome: Literal["go on", "promote", "back"] = "go on"
    if high < bound:
        outcome, words = "back", f"clearly slower: {words}"
    elif not in_time:
        words = f"so far {words}"
    elif low >= bound:
        outcome = "promote"
    elif over:
        outcome = "promote" if ratio >= bound else "back"
        words = f"time is up, by the estimate: {words}"
    else:
        words = f"unclear: {words}"
    return CanaryJudgement(outcome, (words,), ratio, low, high)


def compare(
    canaries: Sequence[EngineWindow], others: Sequence[EngineWindow], confidence: float
) -> tuple[float, float, float]:
    """Ratio of the canaries' speed to the others', low and high.

    With fewer than three engines in all nothing is known of how much engines differ: the
    interval is 0 … infinity. (0, 0, infinity) too where they share no batch size.
    """
    reference = _rates(others)
    left = [score for one in canaries if (score := _score(one, reference)) is not None]
    right = [score for one in others if (score := _score(one, reference)) is not None]
    if not left or not right:
        return 0.0, 0.0, math.inf
    difference = float(np.mean(left) - np.mean(right))
    degrees = len(left) + len(right) - 2
    if degrees < 1:
        return math.exp(difference), 0.0, math.inf
    rest = [*(np.array(left) - np.mean(left)), *(np.array(right) - np.mean(right))]
    variance = float(np.sum(np.square(rest))) / degrees
    error = math.sqrt(variance * (1 / len(left) + 1 / len(right)))
    half = student_halfwidth(confidence, degrees) * error
    return math.exp(difference), math.exp(difference - half), math.exp(min(difference + half, 700))


def _lack(
    policy: CanaryPolicy, canaries: Sequence[EngineWindow], others: Sequence[EngineWindow]
) -> str:
    """What is missing for a comparison, in words; empty when nothing is."""
    for name, side in (("canary", canaries), ("other", others)):
        steps = sum(one.steps for one in side)
        if steps < policy.least_steps:
            return f"the {name} engines took {steps:.0f} steps, {policy.least_steps} are needed"
    shared = {_group(b) for one in canaries for b in one.uses} & {
        _group(b) for one in others for b in one.uses
    }
    return "" if shared else "canaries and others had no batch size in common"


def _group(batch_size: int) -> int:
    if batch_size <= EXACT_SIZES:
        return batch_size
    return EXACT_SIZES + 1 + int(8 * math.log2(batch_size / EXACT_SIZES))


def _grouped(windows: Sequence[EngineWindow]) -> dict[int, tuple[float, float, float]]:
    """By group: steps, request-seconds, output tokens."""
    sums: dict[int, tuple[float, float, float]] = {}
    for window in windows:
        for size, use in window.uses.items():
            steps, seconds, tok = sums.get(_group(size), (0.0, 0.0, 0.0))
            total = (steps + use.steps, seconds + size * use.seconds, tok + use.output_tok)
            sums[_group(size)] = total
    return sums


def _rates(windows: Sequence[EngineWindow]) -> dict[int, float]:
    """Log output tokens per request and second, by group."""
    return {
        group: math.log(tok / seconds)
        for group, (_, seconds, tok) in _grouped(windows).items()
        if seconds > 0 and tok > 0
    }


def _score(window: EngineWindow, reference: Mapping[int, float]) -> float | None:
    rates = _rates([window])
    shared = [group for group in rates if group in reference]
    if not shared:
        return None
    weights = _grouped([window])
    total = sum(weights[group][0] for group in shared)
    return sum(weights[g][0] * (rates[g] - reference[g]) for g in shared) / total
