"""Validates a table by throughput: against every fixed length, the incumbent and no speculation.

One call where all engines run at once:

    verdict = validate(setup, bench, subject, no_speculation=run, stock=run)

Where they cannot, each is measured in its own boot and the parts are merged:

    outcome = measure_on_plugin_engine(setup, bench, subject, by_metrics=True)
    measure_elsewhere(setup, bench, [no_speculation_run], outcome)      # another boot
    verdict = conclude(setup, bench, outcome)

What passes is said in judge.py, how a table is corrected between the two in recheck.py.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tabletune.measure import rounds
from tabletune.measure.api import EngineApiError
from tabletune.measure.correct import correct
from tabletune.measure.judge import Comparison, compare, judge
from tabletune.measure.measurements import Key, Measurements
from tabletune.measure.rounds import Bench, by_steps, play
from tabletune.measure.stock_check import check_throughput, stock_check
from tabletune.measure.validation_setup import (
    Setup,
    Subject,
    by_metrics_runs,
    distinct,
    plugin_runs,
)
from tabletune.measure.windows import MetricsWindow, PolicyRun
from tabletune.records.policy import (
    CANDIDATE,
    CANDIDATE_BY_METRICS,
    NO_SPECULATION,
    STOCK,
    never_drafts,
)
from tabletune.records.verdict import StockCheck, Verdict

PLUGIN_BOOT = "measured"
#: Further rounds measured before the next look at whether they suffice.
ROUNDS_PER_LOOK = 2
#: The candidate's ratio to a policy far behind it is at least this, at its lowest.
FAR_AHEAD = 1.1
#: Looks after the least rounds that come before giving up, however long they take.
LOOKS = 2


@dataclass
class Outcome:
    """What was measured so far.

    Attributes:
        stock_windows: windows of the stock engine, by concurrency.
        wall_time_s: time spent measuring.
        failures: reasons why the candidate fails whatever its ratios are.
        remarks: what the verdict is to say besides.
    """

    measurements: Measurements = field(default_factory=Measurements)
    stock_windows: dict[int, list[MetricsWindow]] = field(
        default_factory=dict[int, list[MetricsWindow]]
    )
    always_proposes: bool = True
    wall_time_s: float = 0.0
    failures: list[str] = field(default_factory=list[str])
    remarks: list[str] = field(default_factory=list[str])


def validate(
    setup: Setup,
    bench: Bench,
    subject: Subject,
    no_speculation: PolicyRun | None = None,
    stock: PolicyRun | None = None,
) -> Verdict:
    """Measure and judge with all engines running; the candidate is not corrected.

    Raises:
        LoadEndedError, LengthNotFollowedError, MetricsError, EngineApiError: see there.
    """
    outcome = measure_on_plugin_engine(setup, bench, subject)
    others = [run for run in (no_speculation, stock) if run is not None]
    if others:
        measure_beside(setup, bench, subject, others, outcome)
    return conclude(setup, bench, outcome)


def measure_on_plugin_engine(
    setup: Setup, bench: Bench, subject: Subject, by_metrics: bool = False
) -> Outcome:
    """Measure all policies of one boot, with further rounds where the outcome is unclear.

    Args:
        by_metrics: also measure the candidate and K = 0 from the metrics page, for comparison
            with engines that run at another time.
    """
    outcome = Outcome(always_proposes=subject.always_proposes)
    runs = plugin_runs(setup, subject)
    plans = {c: distinct(runs, c) for c in setup.concurrencies}
    bench.begin("validate", sum(len(kept) for kept, _ in plans.values()) * setup.rounds)
    with restored(subject), timed(bench, outcome):
        for concurrency, (kept, same) in plans.items():
            outcome.measurements.same |= {Key(p, concurrency): of for p, of in same.items()}
            play_until_clear(setup, bench, kept, concurrency, outcome, setup.rounds)
    if by_metrics:
        measure_elsewhere(setup, bench, by_metrics_runs(setup, subject), outcome, subject)
    return outcome


def measure_elsewhere(
    setup: Setup,
    bench: Bench,
    runs: Sequence[PolicyRun],
    outcome: Outcome,
    subject: Subject | None = None,
    title: str = "validate from metrics pages",
) -> None:
    """Measure policies from their engines' metrics pages and add them to `outcome`.

    Args:
        runs: their windows lie between each other's and are paired.
        subject: the engine with the plugin, where some of them run on it.
        title: for the progress.
    """
    found, seen = outcome.measurements, dict[Key, list[MetricsWindow]]()
    boot = "+".join(sorted(run.policy for run in runs))
    prepare = rounds.by_metrics(bench, found, boot, seen)
    wanted = {run.policy: _metrics_rounds(setup, run) for run in runs}
    bench.begin(title, sum(wanted.values()) * len(setup.concurrencies))
    with restored(subject), timed(bench, outcome):
        for concurrency in setup.concurrencies:
            more_from = max(wanted.values(), default=0)
            for number in range(more_from):
                now = [run for run in runs if wanted[run.policy] > number]
                play(bench, now, concurrency, range(number, number + 1), prepare, stretch=0)
            for number in range(more_from, more_from + setup.more_metrics_rounds):
                now = _to_go_on(setup, bench, runs, outcome, concurrency)
                if not now:
                    break
                play(bench, now, concurrency, range(number, number + 1), prepare, stretch=0)
    for key, windows in seen.items():
        if key.policy == STOCK:
            outcome.stock_windows.setdefault(key.concurrency, []).extend(windows)


def measure_beside(
    setup: Setup, bench: Bench, subject: Subject, others: Sequence[PolicyRun], outcome: Outcome
) -> None:
    """`measure_elsewhere` for engines that run at the same time as the one with the plugin."""
    runs = [*by_metrics_runs(setup, subject), *others]
    title = "validate beside the stock engine and the one without speculation"
    measure_elsewhere(setup, bench, runs, outcome, subject, title)


@contextlib.contextmanager
def restored(subject: Subject | None) -> Iterator[None]:
    """Leaves the boot table in force, unless the engine is gone: that is told elsewhere."""
    try:
        yield
    finally:
        if subject is not None:
            with contextlib.suppress(EngineApiError):
                subject.engine.swap_table(None)


@contextlib.contextmanager
def timed(bench: Bench, outcome: Outcome) -> Iterator[None]:
    """Adds what it takes to the outcome's wall time."""
    begun_s = bench.clock.now_s()
    try:
        yield
    finally:
        outcome.wall_time_s += bench.clock.now_s() - begun_s


def play_until_clear(
    setup: Setup,
    bench: Bench,
    runs: Sequence[PolicyRun],
    concurrency: int,
    outcome: Outcome,
    least: int,
) -> None:
    """`least` rounds of all `runs`, the candidate first among them, then of unclear ones.

    Of the `least` those far behind the candidate get the setup's first ones only. Once the budget
    is spent further rounds are for those that would fail though not clearly.
    """
    found = outcome.measurements
    prepare = by_steps(bench, found, PLUGIN_BOOT)
    begun_s = bench.clock.now_s()
    done = begun = found.next_round(concurrency)
    last = begun + least + setup.more_rounds
    wanted, count = list(runs), least
    if 0 < setup.first_rounds < least:
        play(bench, wanted, concurrency, range(done, done + setup.first_rounds), prepare)
        done, count = done + setup.first_rounds, least - setup.first_rounds
        wanted = _near(setup, bench, outcome, wanted, concurrency)
    while wanted and count > 0:
        play(bench, wanted, concurrency, range(done, done + count), prepare)
        done += count
        comparisons = compare_here(setup, bench, outcome, concurrency)
        spent_s = bench.clock.now_s() - begun_s
        surely = 1.0 if spent_s > setup.budget_s else 0.0
        if setup.correct_early or done >= last:
            surely = float("inf")
        if _to_be_corrected(setup, outcome, comparisons, surely):
            return
        if spent_s > setup.give_up_s and done >= begun + least + LOOKS * ROUNDS_PER_LOOK:
            return
        open_ = [c for c in comparisons if undecided(c)]
        if spent_s > setup.budget_s:
            open_ = [c for c in open_ if not c.passes(setup.margins.slack)]
        names = {found.measured_as(c.policy, concurrency) for c in open_}
        wanted = [run for run in runs if run.policy in names]
        wanted = [run for run in runs if run.policy == CANDIDATE] + wanted if wanted else []
        count = min(ROUNDS_PER_LOOK, last - done)


def _near(
    setup: Setup, bench: Bench, outcome: Outcome, runs: Sequence[PolicyRun], concurrency: int
) -> list[PolicyRun]:
    """The runs without those far behind the candidate, which it neither fails against nor is
    corrected to. K = 0 stays: through it no speculation is met."""
    found = outcome.measurements
    far = {
        found.measured_as(one.policy, concurrency)
        for one in compare_here(setup, bench, outcome, concurrency)
        if one.low >= FAR_AHEAD and not never_drafts(found.measured_as(one.policy, concurrency))
    }
    kept = [r for r in runs if r.policy == CANDIDATE or r.policy not in far]
    return kept if len(kept) > 1 else list(runs)


def _to_be_corrected(
    setup: Setup, outcome: Outcome, comparisons: Sequence[Comparison], below: float
) -> bool:
    """Whether further rounds are better spent on the corrected table, if it can be corrected.

    below: what measured better counts where the candidate's ratio is below this at its highest;
        what clearly fails counts anyway.
    """
    if setup.envelope is None:
        return False
    better = [c for c in comparisons if c.standing == "fails" or c.high < below]
    here = {c.concurrency for c in comparisons}
    steps = {c: s for c, s in outcome.measurements.steps_by_size().items() if c in here}
    return correct(setup.candidate.dense(), better, steps, setup.envelope) is not None


def undecided(comparison: Comparison) -> bool:
    """Whether further rounds could decide; for the same draft lengths they decide nothing."""
    return comparison.standing == "unclear" and not comparison.same_lengths


def compare_here(
    setup: Setup, bench: Bench, outcome: Outcome, concurrency: int
) -> list[Comparison]:
    """All comparisons at one concurrency."""
    return compare(outcome.measurements, concurrency, setup.margins, bench.rng)


def compare_all(setup: Setup, bench: Bench, outcome: Outcome) -> list[Comparison]:
    """All comparisons."""
    loads = outcome.measurements.concurrencies()
    return [c for load in loads for c in compare_here(setup, bench, outcome, load)]


def _metrics_rounds(setup: Setup, run: PolicyRun) -> int:
    return setup.metrics_rounds if never_drafts(run.policy) else setup.stock_rounds


def _to_go_on(
    setup: Setup,
    bench: Bench,
    runs: Sequence[PolicyRun],
    outcome: Outcome,
    concurrency: int,
) -> list[PolicyRun]:
    """The runs whose further windows could decide something.

    Always both ends of a ratio: more windows of the one help little without the other's.
    """
    wanted: list[PolicyRun] = []
    if _off_decides(setup, bench, outcome, concurrency):
        wanted += [run for run in runs if never_drafts(run.policy)]
    if not _stock_keeps_up(setup, outcome, concurrency):
        wanted += [run for run in runs if run.policy in (STOCK, CANDIDATE_BY_METRICS)]
    return wanted


def _off_decides(setup: Setup, bench: Bench, outcome: Outcome, concurrency: int) -> bool:
    """Whether no speculation is unclear, and more so by metrics than by steps."""
    for one in compare_here(setup, bench, outcome, concurrency):
        if one.policy == NO_SPECULATION and one.standing == "unclear":
            *by_steps_width, by_metrics_width = (f.high / f.low for f in one.factors)
            return all(by_metrics_width > width for width in by_steps_width)
    return False


def _stock_keeps_up(setup: Setup, outcome: Outcome, concurrency: int) -> bool:
    """Whether the stock engine's throughput fits, as far as it was measured."""
    stock = outcome.measurements.of(STOCK, concurrency)
    plugin = outcome.measurements.of(CANDIDATE_BY_METRICS, concurrency)
    if stock is None or plugin is None:
        return True
    margin = setup.margins.no_speculation
    return check_throughput(concurrency, stock.values(), plugin.values(), margin).passed


def conclude(setup: Setup, bench: Bench, outcome: Outcome) -> Verdict:
    """Judge what was measured.

    Raises:
        ValueError: nothing was measured that the candidate could be compared with.
    """
    comparisons = compare_all(setup, bench, outcome)
    judgement = judge(comparisons, setup.margins.slack)
    stock = _stock(setup, outcome)
    reasons = [*outcome.failures, *judgement.reasons]
    if stock is not None and not stock.passed:
        reasons.insert(0, f"the stock engine {stock.evidence}")
    if not any(c.policy == NO_SPECULATION for c in comparisons):
        reasons.append("not compared with an engine without speculation, only with K = 0")
    if setup.incumbent is not None and setup.incumbent.dense() == setup.candidate.dense():
        reasons.append("the candidate and the incumbent are the same table")
    passed = judgement.passed and not outcome.failures and (stock is None or stock.passed)
    return Verdict(
        table_version=setup.candidate_version,
        fingerprint=setup.fingerprint,
        incumbent_version=setup.incumbent_version,
        passed=passed,
        reasons=(*reasons, *outcome.remarks),
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
