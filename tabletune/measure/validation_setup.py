"""What a validation measures: the candidate's table, and the policies it is held against."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tabletune.measure.driven import DrivenEngine
from tabletune.measure.windows import PolicyRun
from tabletune.records.plan import Envelope
from tabletune.records.policy import (
    CANDIDATE,
    CANDIDATE_BY_METRICS,
    INCUMBENT,
    OFF_BY_METRICS,
    fixed_policy,
)
from tabletune.records.table import Table
from tabletune.records.verdict import Margins
from tabletune.records.vllm_format import to_vllm


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
        rounds: of windows read from steps; fewer than 3 give very wide intervals.
        first_rounds: after so many of them policies far behind the candidate get no further ones;
            0 for all rounds of every policy.
        more_rounds: how many further rounds unclear pairs may get.
        budget_s: once the rounds at a concurrency took so long, further ones are for pairs only
            that would fail though not clearly, and a fixed length that is better, if maybe not
            by the margin, corrects the candidate at once.
        give_up_s: after so long, and some looks, there are no further rounds at a concurrency:
            what is not clear then is judged as it is.
        metrics_rounds, more_metrics_rounds: the same for the windows of K = 0 and of no
            speculation that are read from metrics pages.
        stock_rounds: of windows of the stock engine, and of the candidate beside it.
        fresh_rounds: of windows after a correction, where it changed something; of these, too,
            policies far behind get the first ones only.
        envelope: what a correction of the candidate may use; None for no correction.
        correct_early: a fixed length that measured better corrects the candidate at once though
            that is not clear; otherwise after the last round only.
    """

    candidate: Table
    candidate_version: str
    fingerprint: str
    concurrencies: tuple[int, ...]
    incumbent: Table | None = None
    incumbent_version: str = ""
    margins: Margins = field(default_factory=Margins)
    rounds: int = 4
    first_rounds: int = 0
    more_rounds: int = 12
    budget_s: float = float("inf")
    give_up_s: float = float("inf")
    metrics_rounds: int = 4
    more_metrics_rounds: int = 4
    stock_rounds: int = 4
    fresh_rounds: int = 4
    envelope: Envelope | None = None
    correct_early: bool = False


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


def fixed_run(
    draft_length: int, max_num_seqs: int, subject: Subject, policy: str = ""
) -> PolicyRun:
    """One draft length for every batch size, pinned."""
    return PolicyRun(
        policy or fixed_policy(draft_length),
        subject.engine,
        subject.model,
        lambda: subject.engine.pin(draft_length),
        (draft_length,) * (max_num_seqs + 1),
    )


def plugin_runs(setup: Setup, subject: Subject) -> list[PolicyRun]:
    """Every policy that the engine with the plugin can show, the candidate first."""
    runs = [table_run(CANDIDATE, setup.candidate, subject)]
    seqs = setup.candidate.max_num_seqs
    runs += [fixed_run(k, seqs, subject) for k in sorted({0, *subject.lengths})]
    if setup.incumbent is not None:
        runs.append(table_run(INCUMBENT, setup.incumbent, subject))
    return runs


def by_metrics_runs(setup: Setup, subject: Subject) -> list[PolicyRun]:
    """What the engine with the plugin shows to metrics pages: the candidate, and K = 0."""
    seqs = setup.candidate.max_num_seqs
    return [
        table_run(CANDIDATE_BY_METRICS, setup.candidate, subject),
        fixed_run(0, seqs, subject, OFF_BY_METRICS),
    ]


def distinct(runs: Sequence[PolicyRun], concurrency: int) -> tuple[list[PolicyRun], dict[str, str]]:
    """The runs that differ at this concurrency, and for each other one whose equal it is.

    A closed loop of so many requests shows no larger batch: two lookups that agree up to there
    give the same steps.
    """
    kept: list[PolicyRun] = []
    same: dict[str, str] = {}
    first: dict[tuple[int, ...], str] = {}
    for run in runs:
        lengths = run.lookup[1 : concurrency + 1]
        if lengths in first:
            same[run.policy] = first[lengths]
        else:
            first[lengths] = run.policy
            kept.append(run)
    return kept, same
