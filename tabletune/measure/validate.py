"""Validates a table by throughput: against every fixed length, the incumbent and no speculation.

One call where all engines run at once:

    verdict = validate(setup, bench, subject, no_speculation=run, stock=run)

Where they cannot, each is measured in its own boot and the parts are merged:

    outcome = measure_on_plugin_engine(setup, bench, subject, by_metrics=True)
    measure_elsewhere(setup, bench, [no_speculation_run], outcome)      # another boot
    verdict = conclude(setup, bench, outcome)

What passes is said in judge.py.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tabletune.measure import rounds
from tabletune.measure.api import EngineApiError
from tabletune.measure.driven import DrivenEngine
from tabletune.measure.judge import Comparison, compare, judge
from tabletune.measure.measurements import Key, Measurements
from tabletune.measure.rounds import Bench, by_steps, play
from tabletune.measure.stock_check import stock_check
from tabletune.measure.windows import MetricsWindow, PolicyRun
from tabletune.records.policy import (
    CANDIDATE,
    CANDIDATE_BY_METRICS,
    INCUMBENT,
    NO_SPECULATION,
    STOCK,
    fixed_policy,
)
from tabletune.records.table import Table
from tabletune.records.verdict import Margins, StockCheck, Verdict
from tabletune.records.vllm_format import to_vllm

PLUGIN_BOOT = "measured"
#: Further rounds measured before the next look at whether they suffice.
ROUNDS_PER_LOOK = 2


@dataclass(frozen=True)
class Subject:
    """The engine with the plugin on which tables are swapped live.

    Attributes:
        lengths: every fixed draft length of the plan; 0 is added.
        always_proposes: False for drafters that may propose nothing (n-gram, suffix).
    """

    engine: DrivenEngine
    model: str
    lengths: tuple[int, ...]
    always_proposes: bool = True


@dataclass(frozen=True)
class Setup:
    """What is validated, and how thoroughly.

    Attributes:
        candidate, incumbent: tables; the versions are their names in the verdict.
        concurrencies: open requests of the closed loop.
        rounds: of windows read from steps; fewer than 4 give very wide intervals.
        more_rounds: how many further rounds unclear pairs may get.
        metrics_rounds, more_metrics_rounds: the same for windows read from metrics pages.
    """

    candidate: Table
    candidate_version: str
    fingerprint: str
    concurrencies: tuple[int, ...]
    incumbent: Table | None = None
    incumbent_version: str = ""
    margins: Margins = field(default_factory=Margins)
    rounds: int = 4
    more_rounds: int = 12
    metrics_rounds: int = 4
    more_metrics_rounds: int = 4


@dataclass
class Outcome:
    """What was measured so far.

    Attributes:
        stock_windows: windows of the stock engine, by concurrency.
        wall_time_s: time spent measuring.
    """

    measurements: Measurements = field(default_factory=Measurements)
    stock_windows: dict[int, list[MetricsWindow]] = field(
        default_factory=dict[int, list[MetricsWindow]]
    )
    always_proposes: bool = True
    wall_time_s: float = 0.0


def validate(
    setup: Setup,
    bench: Bench,
    subject: Subject,
    no_speculation: PolicyRun | None = None,
    stock: PolicyRun | None = None,
) -> Verdict:
    """Measure and judge with all engines running.

    Raises:
        LoadEndedError, LengthNotFollowedError, MetricsError, EngineApiError: see there.
    """
    outcome = measure_on_plugin_engine(setup, bench, subject)
    others = [run for run in (no_speculation, stock) if run is not None]
    if others:
        candidate = candidate_run(setup, subject, CANDIDATE_BY_METRICS)
        try:
            measure_elsewhere(setup, bench, [candidate, *others], outcome)
        finally:
            _restore(subject)
    return conclude(setup, bench, outcome)


def table_run(policy: str, table: Table, subject: Subject) -> PolicyRun:
    """A table, swapped in live."""
    ranges = to_vllm(table)
    return PolicyRun(
        policy,
        subject.engine,
        subject.model,
        lambda: subject.engine.swap_table(ranges),
        tuple(table.dense()),
    )


def fixed_run(draft_length: int, max_num_seqs: int, subject: Subject) -> PolicyRun:
    """One draft length for every batch size, pinned."""
    return PolicyRun(
        fixed_policy(draft_length),
        subject.engine,
        subject.model,
        lambda: subject.engine.pin(draft_length),
        (draft_length,) * (max_num_seqs + 1),
    )


def candidate_run(setup: Setup, subject: Subject, policy: str = CANDIDATE) -> PolicyRun:
    """The candidate on the engine with the plugin, under the name `policy`."""
    return table_run(policy, setup.candidate, subject)


def plugin_runs(setup: Setup, subject: Subject) -> list[PolicyRun]:
    """Every policy that the engine with the plugin can show."""
    runs = [candidate_run(setup, subject)]
    if setup.incumbent is not None:
        runs.append(table_run(INCUMBENT, setup.incumbent, subject))
    seqs = setup.candidate.max_num_seqs
    return runs + [fixed_run(k, seqs, subject) for k in sorted({0, *subject.lengths})]


def measure_on_plugin_engine(
    setup: Setup, bench: Bench, subject: Subject, by_metrics: bool = False
) -> Outcome:
    """Measure all policies of one boot, with further rounds where the outcome is unclear.

    Args:
        by_metrics: also measure the candidate from the metrics page, for comparison with
            engines that run at another time.
    """
    begun_s = bench.clock.now_s()
    outcome = Outcome(always_proposes=subject.always_proposes)
    runs = plugin_runs(setup, subject)
    bench.progress.start("validate", len(runs) * setup.rounds * len(setup.concurrencies))
    try:
        for concurrency in setup.concurrencies:
            _measure_concurrency(setup, bench, runs, concurrency, outcome)
        if by_metrics:
            _by_metrics(
                setup, bench, [candidate_run(setup, subject, CANDIDATE_BY_METRICS)], outcome
            )
    finally:
        _restore(subject)
    outcome.wall_time_s += bench.clock.now_s() - begun_s
    return outcome


def _restore(subject: Subject) -> None:
    """Back to the boot table, unless the engine is gone: what went wrong is told elsewhere."""
    with contextlib.suppress(EngineApiError):
        subject.engine.swap_table(None)


def measure_elsewhere(
    setup: Setup, bench: Bench, runs: Sequence[PolicyRun], outcome: Outcome
) -> None:
    """Measure policies of other engines from their metrics pages and add them to `outcome`.

    With the candidate among `runs` its windows lie between theirs and are paired with them.
    """
    begun_s = bench.clock.now_s()
    _by_metrics(setup, bench, runs, outcome)
    outcome.wall_time_s += bench.clock.now_s() - begun_s


def _measure_concurrency(
    setup: Setup, bench: Bench, runs: Sequence[PolicyRun], concurrency: int, outcome: Outcome
) -> None:
    prepare = by_steps(bench, outcome.measurements, PLUGIN_BOOT)
    wanted, done, limit = list(runs), 0, setup.rounds + setup.more_rounds
    while wanted and done < limit:
        count = setup.rounds if done == 0 else min(ROUNDS_PER_LOOK, limit - done)
        play(bench, wanted, concurrency, range(done, done + count), prepare)
        done += count
        unclear = _unclear(_compare(setup, bench, outcome, concurrency))
        wanted = [runs[0], *(r for r in runs if r.policy in unclear)] if unclear else []


def _by_metrics(setup: Setup, bench: Bench, runs: Sequence[PolicyRun], outcome: Outcome) -> None:
    found, seen = outcome.measurements, dict[Key, list[MetricsWindow]]()
    prepare = rounds.by_metrics(bench, found, "+".join(sorted(run.policy for run in runs)), seen)
    for concurrency in setup.concurrencies:
        wanted, done = list(runs), 0
        while wanted and done < setup.metrics_rounds + setup.more_metrics_rounds:
            count = setup.metrics_rounds if done == 0 else 1
            play(bench, wanted, concurrency, range(done, done + count), prepare)
            done += count
            if Key(CANDIDATE_BY_METRICS, concurrency) not in found.series:
                break
            unclear = _unclear(_compare(setup, bench, outcome, concurrency))
            wanted = [r for r in runs if r.policy in unclear]
            if wanted:
                wanted += [r for r in runs if r.policy == CANDIDATE_BY_METRICS]
    for key, windows in seen.items():
        if key.policy == STOCK:
            outcome.stock_windows.setdefault(key.concurrency, []).extend(windows)


def _compare(setup: Setup, bench: Bench, outcome: Outcome, concurrency: int) -> list[Comparison]:
    return compare(outcome.measurements, concurrency, setup.margins, bench.rng)


def _unclear(comparisons: Sequence[Comparison]) -> set[str]:
    """Pairs that further rounds could decide; for the same draft lengths they decide nothing."""
    return {c.policy for c in comparisons if c.standing == "unclear" and not c.same_lengths}


def conclude(setup: Setup, bench: Bench, outcome: Outcome) -> Verdict:
    """Judge what was measured.

    Raises:
        ValueError: nothing was measured that the candidate could be compared with.
    """
    comparisons = [
        c
        for concurrency in outcome.measurements.concurrencies()
        for c in _compare(setup, bench, outcome, concurrency)
    ]
    judgement = judge(comparisons, setup.margins.slack)
    stock = _stock(setup, outcome)
    reasons = list(judgement.reasons)
    if stock is not None and not stock.passed:
        reasons.insert(0, f"the stock engine {stock.evidence}")
    if not any(c.policy == NO_SPECULATION for c in comparisons):
        reasons.append("not compared with an engine without speculation, only with K = 0")
    if setup.incumbent is not None and setup.incumbent.dense() == setup.candidate.dense():
        reasons.append("the candidate and the incumbent are the same table")
    return Verdict(
        table_version=setup.candidate_version,
        fingerprint=setup.fingerprint,
        incumbent_version=setup.incumbent_version,
        passed=judgement.passed and (stock is None or stock.passed),
        reasons=tuple(reasons),
        margins=setup.margins,
        measured=outcome.measurements.records(),
        ratios=judgement.ratios,
        stock=stock,
        wall_time_s=outcome.wall_time_s,
        validated_at=bench.clock.utc(),
    )


def _stock(setup: Setup, outcome: Outcome) -> StockCheck | None:
    if not outcome.stock_windows:
        return None
    series = outcome.measurements.series
    plugin: Mapping[int, list[float]] = {
        c: series[Key(CANDIDATE_BY_METRICS, c)].values()
        for c in outcome.stock_windows
        if Key(CANDIDATE_BY_METRICS, c) in series
    }
    margin = setup.margins.no_speculation
    return stock_check(
        setup.candidate, outcome.stock_windows, plugin, outcome.always_proposes, margin
    )
