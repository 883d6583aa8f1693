"""Stage: the candidate's throughput against every alternative, and in a stock engine."""

from dataclasses import dataclass

import numpy as np

from tabletune.measure.driven import open_closed_loop
from tabletune.measure.rounds import Bench
from tabletune.measure.validate import (
    Outcome,
    Setup,
    Subject,
    candidate_run,
    conclude,
    measure_elsewhere,
    measure_on_plugin_engine,
)
from tabletune.measure.windows import PolicyRun, WindowOptions
from tabletune.pipeline.requests import natural_requests, sample_prompts, step_time_requests
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.session import ENGINE_TROUBLE, LiveEngine
from tabletune.records.plan import CapturePlan
from tabletune.records.policy import CANDIDATE_BY_METRICS, NO_SPECULATION, STOCK
from tabletune.records.table import Table, TableVersion
from tabletune.records.verdict import Verdict


@dataclass(frozen=True)
class Effort:
    """How much is measured: rounds, further rounds for what is unclear, and windows."""

    rounds: int
    more_rounds: int
    metrics_rounds: int
    more_metrics_rounds: int
    output_tok: int
    windows: WindowOptions


#: A CPU engine's steps take 50 to 200 ms, so it gets less work in each window.
EFFORT = {
    "cpu": Effort(4, 3, 2, 2, 48, WindowOptions(requests_per_slot=0.6, min_tok=72)),
    "cuda": Effort(6, 18, 4, 4, 256, WindowOptions()),
}


def default_concurrencies(max_num_seqs: int) -> tuple[int, ...]:
    """One request, a quarter and the whole of the largest batch."""
    return tuple(sorted({1, max(1, max_num_seqs // 4), max_num_seqs}))


def stage_validate(
    run: RunContext,
    plan: CapturePlan,
    version: TableVersion,
    incumbent: TableVersion | None,
) -> Verdict:
    """The verdict on `version`.

    The measuring engine swaps tables live. The stock engine and the one without speculation
    run beside it on a CPU, interleaved window by window; a GPU's memory holds one engine at a
    time, so there they follow in boots of their own.

    Raises:
        EngineError: an engine did not start, or died.
    """
    request, platform = run.request, run.target.platform
    effort = EFFORT[platform]
    setup = Setup(
        candidate=version.table,
        candidate_version=version.content_hash,
        fingerprint=version.fingerprint,
        concurrencies=request.concurrencies or default_concurrencies(request.max_num_seqs),
        incumbent=_comparable(incumbent, version, plan),
        incumbent_version=incumbent.content_hash if incumbent is not None else "",
        margins=request.margins,
        rounds=effort.rounds,
        more_rounds=effort.more_rounds,
        metrics_rounds=effort.metrics_rounds,
        more_metrics_rounds=effort.more_metrics_rounds,
    )
    live = run.session.measuring(plan)
    bench = _bench(run, live)
    subject = Subject(
        engine=live.api,
        model=live.model.name,
        lengths=plan.lengths,
        always_proposes=request.step_kind == "constant",
    )
    try:
        if platform == "cpu":
            outcome = _side_by_side(run, setup, bench, subject, version)
        else:
            outcome = _one_after_the_other(run, setup, bench, subject, version)
    except ENGINE_TROUBLE as error:
        live_now = run.session.measuring_if_up()
        death = None if live_now is None else live_now.death("validating", run.clock)
        if death is not None:
            raise death from error
        raise
    verdict = conclude(setup, bench, outcome)
    run.workspace.save(run.identity, verdict, f"verdict-{version.content_hash[:16]}")
    return verdict


def _side_by_side(
    run: RunContext, setup: Setup, bench: Bench, subject: Subject, version: TableVersion
) -> Outcome:
    outcome = measure_on_plugin_engine(setup, bench, subject)
    with run.session.stock_and_plain(version) as (stock, plain):
        runs = [candidate_run(setup, subject, CANDIDATE_BY_METRICS), _stock(stock), _plain(plain)]
        run.progress.start("validate beside the stock engine and the one without speculation")
        measure_elsewhere(setup, bench, runs, outcome)
    return outcome


def _one_after_the_other(
    run: RunContext, setup: Setup, bench: Bench, subject: Subject, version: TableVersion
) -> Outcome:
    outcome = measure_on_plugin_engine(setup, bench, subject, by_metrics=True)
    run.session.stop_measuring()
    with run.session.stock(version) as stock:
        measure_elsewhere(setup, bench, [_stock(stock)], outcome)
    with run.session.plain() as plain:
        measure_elsewhere(setup, bench, [_plain(plain)], outcome)
    return outcome


def _stock(live: LiveEngine) -> PolicyRun:
    return PolicyRun(STOCK, live.api, live.model.name, _nothing, kind="stock")


def _plain(live: LiveEngine) -> PolicyRun:
    return PolicyRun(NO_SPECULATION, live.api, live.model.name, _nothing, kind="no_speculation")


def _nothing() -> None:
    """The engine was booted with the policy."""


def _bench(run: RunContext, live: LiveEngine) -> Bench:
    prompts = sample_prompts(run.request)
    if run.request.synthetic:
        requests, _ = step_time_requests(run.request, prompts, live, run.progress)
    else:
        output_tok = EFFORT[run.target.platform].output_tok
        requests = natural_requests(prompts, live, run.progress, output_tok)
    return Bench(
        requests=tuple(requests),
        windows=EFFORT[run.target.platform].windows,
        clock=run.clock,
        rng=np.random.default_rng(0),
        progress=run.progress,
        open_load=open_closed_loop,
    )


def _comparable(
    incumbent: TableVersion | None, candidate: TableVersion, plan: CapturePlan
) -> Table | None:
    """The incumbent's table, where it fits the engine under test."""
    if incumbent is None:
        return None
    fits = incumbent.table.max_num_seqs == candidate.table.max_num_seqs and set(
        incumbent.table.lengths
    ) <= set(plan.lengths)
    return incumbent.table if fits else None
