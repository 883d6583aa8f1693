"""Stage: the candidate's throughput against every alternative, and in a stock engine.

Where some fixed length measures better at some load, the candidate is corrected there, and the
corrected table is validated in its place.
"""

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tabletune.measure.driven import open_closed_loop
from tabletune.measure.engine_errors import EngineError, NoRoomForLog
from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Progress
from tabletune.measure.recheck import corrected_outcome, correction_of
from tabletune.measure.rounds import Bench
from tabletune.measure.validate import (
    Outcome,
    conclude,
    measure_beside,
    measure_elsewhere,
    measure_on_plugin_engine,
)
from tabletune.measure.validation_setup import Setup, Subject, by_metrics_runs
from tabletune.measure.windows import PolicyRun, WindowOptions
from tabletune.pipeline.build import Build
from tabletune.pipeline.corrected import corrected_version
from tabletune.pipeline.gpu_room import Room, needed_tok, room_for_two
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.requests import natural_requests, sample_prompts, step_time_requests
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.session import ENGINE_TROUBLE, LiveEngine
from tabletune.records.plan import CapturePlan
from tabletune.records.policy import NO_SPECULATION, STOCK
from tabletune.records.table import Table, TableVersion
from tabletune.records.verdict import Verdict


@dataclass(frozen=True)
class Effort:
    """How much is measured: rounds, further rounds for what is unclear, and windows.

    See `Setup` for the fields of the same names.
    """

    rounds: int
    more_rounds: int
    metrics_rounds: int
    more_metrics_rounds: int
    stock_rounds: int
    fresh_rounds: int
    output_tok: int
    windows: WindowOptions
    budget_s: float = float("inf")
    give_up_s: float = float("inf")
    correct_early: bool = False
    first_rounds: int = 0


#: On a GPU many short windows tell more than few long ones of the same time: what windows differ
#: by there (the host's price of a step with a prompt, stretches of slower steps) holds on within
#: one. So a window is 128 tokens of each open request, and there are at least eight. Those from
#: metrics pages are longer: each end costs a look, and their partner is of another boot.
#: A CPU engine's steps take 50 to 200 ms. With one request at a time a window is three outputs
#: long, and the prompts' groups take turns, so that the rounds are of much the same text.
EFFORT = {
    "cpu": Effort(
        rounds=3,
        more_rounds=3,
        metrics_rounds=3,
        more_metrics_rounds=3,
        stock_rounds=2,
        fresh_rounds=2,
        output_tok=44,
        windows=WindowOptions(requests_per_slot=0.7, min_tok=132, off_share=0.5, metrics_share=0.6),
        budget_s=75.0,
        correct_early=True,
    ),
    "cuda": Effort(
        rounds=8,
        more_rounds=24,
        metrics_rounds=3,
        more_metrics_rounds=3,
        stock_rounds=3,
        fresh_rounds=6,
        output_tok=256,
        windows=WindowOptions(requests_per_slot=0.5, off_share=0.5, metrics_share=2.4),
        budget_s=20.0,
        give_up_s=40.0,
        first_rounds=4,
    ),
}


#: Half as long as the profile's: a window of 64 requests then takes 2 s on an H200, not 4.
SYNTHETIC_OUTPUT_TOK = 512


@dataclass(frozen=True)
class Validated:
    """How a validation ended.

    Attributes:
        verdict: on `version`.
        corrected: the version that was to be validated, and its verdict, where it was corrected.
    """

    version: TableVersion
    verdict: Verdict
    corrected: tuple[TableVersion, Verdict] | None = None


def default_concurrencies(max_num_seqs: int) -> tuple[int, ...]:
    """One request, a quarter and the whole of the largest batch."""
    return tuple(sorted({1, max(1, max_num_seqs // 4), max_num_seqs}))


@dataclass(frozen=True)
class OnPluginEngine:
    """What the measuring engine says of a candidate, before other engines are asked.

    Attributes:
        version: the candidate, or what it was corrected to; `setup` and `outcome` are its own.
        corrected: see `Validated`.
    """

    setup: Setup
    bench: Bench
    subject: Subject
    version: TableVersion
    outcome: Outcome
    corrected: tuple[TableVersion, Verdict] | None


def stage_validate(
    run: RunContext,
    plan: CapturePlan,
    build: Build,
    incumbent: TableVersion | None,
) -> Validated:
    """The verdict on the build's version, or on what it was corrected to.

    The measuring engine swaps tables live. The stock engine and the one without speculation
    run beside it on a CPU, interleaved window by window. A measuring engine fills a GPU's memory,
    so there they follow when it has stopped: beside each other where there is room.

    Raises:
        EngineError: an engine did not start, or died.
    """
    beside = run.target.platform == "cpu"
    ask_others = _side_by_side if beside else measure_when_it_has_stopped
    found = validate_on_plugin_engine(run, plan, build, incumbent)
    with _death_told(run):
        outcome = ask_others(run, found)
    verdict = _kept(run, conclude(found.setup, found.bench, outcome))
    return Validated(found.version, verdict, found.corrected)


def validate_on_plugin_engine(
    run: RunContext,
    plan: CapturePlan,
    build: Build,
    incumbent: TableVersion | None = None,
) -> OnPluginEngine:
    """The part of a validation that needs no other engine: the candidate against every
    alternative on the measuring engine, and what it is corrected to. No verdict on that.

    Raises:
        EngineError: the engine did not start, or died.
    """
    with _death_told(run):
        live = run.session.measuring(plan)
        bench = _bench(run, live)
        subject = Subject(
            engine=live.api,
            model=live.model.name,
            lengths=plan.lengths,
            always_proposes=run.request.step_kind == "constant",
        )
        setup = _setup(run, plan, build.version, incumbent)
        outcome = measure_on_plugin_engine(setup, bench, subject)
        correction = correction_of(setup, bench, outcome)
        if correction is None:
            return OnPluginEngine(setup, bench, subject, build.version, outcome, None)
        version = corrected_version(build, correction)
        outcome.remarks.append(f"corrected to table version {version.content_hash[:12]}")
        corrected = (build.version, _kept(run, conclude(setup, bench, outcome)))
        for change in correction.changes:
            run.progress.say(f"corrected, {change.words()}")
        # Once only: what is corrected again and again follows the noise.
        after = replace(
            setup,
            candidate=version.table,
            candidate_version=version.content_hash,
            envelope=None,
        )
        outcome = corrected_outcome(setup, after, bench, subject, outcome)
        outcome.remarks = [f"corrected from table version {build.version.content_hash[:12]}"]
        outcome.remarks += [change.words() for change in correction.changes]
        return OnPluginEngine(after, bench, subject, version, outcome, corrected)


@contextlib.contextmanager
def _death_told(run: RunContext) -> Iterator[None]:
    """In place of the trouble that the measuring engine's death caused, its death.

    Raises:
        EngineDied: the measuring engine died.
    """
    try:
        yield
    except ENGINE_TROUBLE as error:
        live_now = run.session.measuring_if_up()
        death = None if live_now is None else live_now.death("validating", run.clock)
        if death is not None:
            raise death from error
        raise


def _setup(
    run: RunContext, plan: CapturePlan, version: TableVersion, incumbent: TableVersion | None
) -> Setup:
    request, effort = run.request, EFFORT[run.target.platform]
    return Setup(
        candidate=version.table,
        candidate_version=version.content_hash,
        fingerprint=version.fingerprint,
        concurrencies=request.concurrencies or default_concurrencies(request.max_num_seqs),
        incumbent=_comparable(incumbent, version, plan),
        incumbent_version=incumbent.content_hash if incumbent is not None else "",
        margins=request.margins,
        rounds=effort.rounds,
        first_rounds=effort.first_rounds,
        more_rounds=effort.more_rounds,
        budget_s=effort.budget_s,
        give_up_s=effort.give_up_s,
        metrics_rounds=effort.metrics_rounds,
        more_metrics_rounds=effort.more_metrics_rounds,
        stock_rounds=effort.stock_rounds,
        fresh_rounds=effort.fresh_rounds,
        envelope=version.envelope,
        correct_early=effort.correct_early,
    )


def _kept(run: RunContext, verdict: Verdict) -> Verdict:
    run.workspace.save(run.identity, verdict, f"verdict-{verdict.table_version[:16]}")
    return verdict


def _side_by_side(run: RunContext, found: OnPluginEngine) -> Outcome:
    setup, bench, subject, outcome = found.setup, found.bench, found.subject, found.outcome
    with run.session.stock_and_plain(found.version) as (stock, plain):
        measure_beside(setup, bench, subject, [_stock(stock), _plain(plain)], outcome)
    return outcome


def measure_when_it_has_stopped(run: RunContext, found: OnPluginEngine) -> Outcome:
    """The other engines on a GPU: after the measuring one, side by side where there is room.

    Returns:
        What was measured, on the measuring engine too.

    Raises:
        EngineError: one did not start on its own, or died.
    """
    setup, bench, subject, outcome = found.setup, found.bench, found.subject, found.outcome
    measure_elsewhere(setup, bench, by_metrics_runs(setup, subject), outcome, subject)
    room = _room(run, found)
    run.session.stop_measuring()
    beside = None if room is None else _measured_beside(run, found, room)
    if beside is not None:
        return beside
    with run.session.stock(found.version) as stock:
        measure_elsewhere(setup, bench, [_stock(stock)], outcome)
    with run.session.plain() as plain:
        measure_elsewhere(setup, bench, [_plain(plain)], outcome)
    return outcome


def _measured_beside(run: RunContext, found: OnPluginEngine, room: Room) -> Outcome | None:
    """`found.outcome` and what the stock engine and the one without speculation showed beside each
    other; None where they did not start so, or could not be measured: each may do on its own."""
    # A window of engines that share a GPU is not to be mixed with one of an engine alone.
    outcome = copy.deepcopy(found.outcome)
    try:
        with run.session.stock_and_plain(found.version, room) as (stock, plain):
            measure_elsewhere(found.setup, found.bench, [_stock(stock), _plain(plain)], outcome)
    except NoRoomForLog:
        raise
    except (EngineError, *ENGINE_TROUBLE) as error:
        why = error.first_line if isinstance(error, EngineError) else error
        run.progress.say(f"two engines do not run beside each other ({why}); one after the other")
        return None
    return outcome


def _room(run: RunContext, found: OnPluginEngine) -> Room | None:
    """What each of two engines may take of the GPU; None where they do not fit."""
    live, alone = run.session.measuring_if_up(), run.session.kv_cache
    memory_bytes = run.target.fingerprint.device.memory_bytes
    if live is None or alone is None:
        return None
    largest = max(found.setup.concurrencies)
    touched = max(map(found.bench.needed, found.setup.concurrencies))
    needed = needed_tok(found.bench.requests, largest, touched, live.model.max_model_len)
    return room_for_two(memory_bytes, alone, needed)


def _stock(live: LiveEngine) -> PolicyRun:
    return PolicyRun(STOCK, live.api, live.model.name, _nothing, kind="stock")


def _plain(live: LiveEngine) -> PolicyRun:
    return PolicyRun(NO_SPECULATION, live.api, live.model.name, _nothing, kind="no_speculation")


def _nothing() -> None:
    """The engine was booted with the policy."""


def _bench(run: RunContext, live: LiveEngine) -> Bench:
    effort = EFFORT[run.target.platform]
    windows = effort.windows
    requests = validation_requests(run.request, live, run.progress, effort.output_tok)
    if run.request.synthetic:  # as much work, though outputs are longer
        share = effort.output_tok / float(np.mean([one.max_tokens for one in requests]))
        windows = replace(windows, requests_per_slot=share * windows.requests_per_slot)
    return Bench(
        requests=requests,
        windows=windows,
        clock=run.clock,
        rng=np.random.default_rng(0),
        progress=run.progress,
        open_load=open_closed_loop,
    )


def validation_requests(
    request: RunRequest, live: LiveEngine, progress: Progress, output_tok: int
) -> tuple[LoadRequest, ...]:
    """The sample prompts with `output_tok` of output at most.

    Where acceptance is synthetic what is written means nothing, and ends nowhere by itself: then
    `SYNTHETIC_OUTPUT_TOK`.
    """
    prompts = sample_prompts(request).mixed()
    if not request.synthetic:
        return tuple(natural_requests(prompts, live, progress, output_tok))
    endless, _ = step_time_requests(request, prompts, live, progress)
    return tuple(replace(r, max_tokens=min(r.max_tokens, SYNTHETIC_OUTPUT_TOK)) for r in endless)


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
