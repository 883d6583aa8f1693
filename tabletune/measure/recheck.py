"""A candidate that its own validation corrects: once, and validated itself in the same boot.

    found = correction_of(setup, bench, outcome)              # None: nothing to correct
    corrected = corrected_outcome(setup, new_setup, bench, subject, outcome)

A window counts for the corrected table too where its steps used the draft lengths that this
table gives to their batch sizes; no other window does. At a load where the corrected table so
takes over another policy's windows, or has none, fresh ones are measured: of the corrected
table, of the policy that is closest to it, and of each that is about as fast. The windows that
led to the correction count beside them, and they chose the length for being high; so the fresh
ones are also judged alone, and a table that fails by them clearly fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tabletune.measure.correct import Correction, correct
from tabletune.measure.judge import Comparison, compare, words
from tabletune.measure.measurements import Key, Measurements, Series
from tabletune.measure.rounds import Bench
from tabletune.measure.validate import (
    Outcome,
    compare_all,
    compare_here,
    play_until_clear,
    restored,
    timed,
    undecided,
)
from tabletune.measure.validation_setup import Setup, Subject, distinct, plugin_runs
from tabletune.measure.windows import OTHER_LENGTH_SHARE, PolicyRun
from tabletune.records.policy import CANDIDATE


def correction_of(setup: Setup, bench: Bench, outcome: Outcome) -> Correction | None:
    """How the candidate is corrected; None where it is not, or must not be."""
    if setup.envelope is None:
        return None
    steps = outcome.measurements.steps_by_size()
    comparisons = compare_all(setup, bench, outcome)
    return correct(setup.candidate.dense(), comparisons, steps, setup.envelope)


@dataclass(frozen=True)
class _Load:
    """One concurrency: the runs that differ there, and whether fresh windows are needed."""

    concurrency: int
    runs: list[PolicyRun]
    fresh: bool


def corrected_outcome(
    before: Setup, setup: Setup, bench: Bench, subject: Subject, outcome: Outcome
) -> Outcome:
    """Measure the corrected candidate of `setup`, with the windows of `outcome` that are its own.

    Args:
        before: with the candidate that `outcome` belongs to.
    """
    found = Outcome(
        always_proposes=outcome.always_proposes,
        wall_time_s=outcome.wall_time_s,
        remarks=list(outcome.remarks),
    )
    runs_before, runs = plugin_runs(before, subject), plugin_runs(setup, subject)
    loads = [_carried(runs_before, runs, c, outcome, found) for c in setup.concurrencies]
    # At most so many: only those that a fresh window may still decide are measured.
    most = sum(len(load.runs) for load in loads if load.fresh) * setup.fresh_rounds
    bench.begin("validate the corrected table", most)
    with restored(subject), timed(bench, found):
        for load in loads:
            if load.fresh:
                _measure(setup, bench, load, found)
    return found


def _carried(
    runs_before: Sequence[PolicyRun],
    runs: Sequence[PolicyRun],
    concurrency: int,
    outcome: Outcome,
    into: Outcome,
) -> _Load:
    """Take over the windows at one concurrency that are still those of a policy."""
    old, new = outcome.measurements, into.measurements
    kept, same = distinct(runs, concurrency)
    owner = _owner(runs_before, kept[0], concurrency, old)
    taken = dict[str, str]()  # by whose windows they were
    for run in kept:
        whose = owner if run.policy == CANDIDATE else old.measured_as(run.policy, concurrency)
        series = old.of(whose, concurrency) if whose else None
        if series is None:
            continue
        if whose in taken:
            same[run.policy] = taken[whose]
            continue
        taken[whose] = run.policy
        new.series[Key(run.policy, concurrency)] = series.copy()
    new.same |= {Key(policy, concurrency): of for policy, of in same.items()}
    kept = [run for run in kept if run.policy not in same]
    return _Load(concurrency, kept, fresh=owner != CANDIDATE)


def _owner(
    runs: Sequence[PolicyRun], candidate: PolicyRun, concurrency: int, found: Measurements
) -> str:
    """Whose windows used the lengths of `candidate` throughout; empty for nobody's."""
    for run in runs:
        series = found.series.get(Key(run.policy, concurrency))
        if series is not None and _used(series, run.lookup, candidate.lookup):
            return run.policy
    return ""


def _used(series: Series, lookup: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether steps that followed `lookup` used the lengths that `wanted` says."""
    largest = len(lookup) - 1
    other = sum(
        count
        for batch_size, count in series.steps.items()
        if lookup[min(batch_size, largest)] != wanted[min(batch_size, largest)]
    )
    steps = sum(series.steps.values())
    return steps > 0 and other <= OTHER_LENGTH_SHARE * steps


def _measure(setup: Setup, bench: Bench, load: _Load, outcome: Outcome) -> None:
    """Fresh rounds at one concurrency."""
    concurrency, found = load.concurrency, outcome.measurements
    first = found.next_round(concurrency)
    runs = load.runs
    if found.of(CANDIDATE, concurrency) is not None:
        comparisons = [
            c for c in compare_here(setup, bench, outcome, concurrency) if not c.identical
        ]
        lowest = min(comparisons, key=lambda c: c.ratio, default=None)
        slack = setup.margins.slack
        close = {c.policy for c in comparisons if c is lowest or _close(c, slack)}
        close = {found.measured_as(policy, concurrency) for policy in close} | {CANDIDATE}
        runs = [run for run in runs if run.policy in close]
    play_until_clear(setup, bench, runs, concurrency, outcome, setup.fresh_rounds)
    for one in compare(found.since(first, concurrency), concurrency, setup.margins, bench.rng):
        if one.standing == "fails" and not one.same_lengths:
            interval = f"{one.ratio:.1%}, {one.low:.1%} to {one.high:.1%}"
            outcome.failures.append(
                f"concurrency {concurrency}: {interval} of the throughput of {words(one.policy)} "
                f"in the windows after the correction alone, below the {one.bound:.0%} asked for"
            )


def _close(comparison: Comparison, slack: float) -> bool:
    """Whether fresh windows may change the outcome: the mean is not clear of the candidate's."""
    ahead = comparison.passes(slack) and comparison.ratio > 2 - comparison.bound
    return undecided(comparison) and not ahead
