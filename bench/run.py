"""Compares the policies of a scenario on a real engine, in short windows that take turns.

    python -m bench.run SCENARIO --work FOLDER --engine PYTHON --out FILE.json [--limit-s 560] \
        [--model MODEL --drafter DRAFTER]
    python -m bench.run SCENARIO --simulate --out FILE.json
    python -m bench.run SCENARIO --print-profile-command --model FOLDER --engine PYTHON …

SCENARIO is a name in bench/scenarios or a path. FOLDER is that of an earlier `tabletune run` or
`tabletune profile` of the same deployment: its plan, qualification, profile and prior are used.
With --model, what it lacks of them is measured first, on the same boot; with --validate the table
is then validated there, and the tuned table is what that makes of it. Every window is kept in
FOLDER/bench/NAME, so that a run that was stopped goes on where it was. Ends with 0 when all is
measured, with 75 when the time limit came first (start it again), with 1 when something is wrong.
The result file is written after each load, and at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import secrets
import sys
import time

from bench.command_line import told_of_this
from bench.evaluation.arms import Arm, arms
from bench.evaluation.cells import Cells
from bench.evaluation.compare import Comparison, OutOfTimeError, bouts
from bench.evaluation.engine import (
    BenchEngine,
    ComparisonError,
    bench_engine,
    bench_session,
    further_replicas,
    promoted_version,
)
from bench.evaluation.profile_command import profile_command
from bench.evaluation.result_file import Result, write_result
from bench.evaluation.scenario import Scenario, ScenarioError, load_scenario
from bench.evaluation.simulated import simulate
from bench.evaluation.workspace_facts import (
    Facts,
    WorkspaceMismatchError,
    measure,
    read_evidence,
    read_request,
    request_of,
    same_environment,
)
from tabletune.commands.console import TerminalProgress
from tabletune.measure.acceptance import AcceptanceError
from tabletune.measure.api import EngineApiError
from tabletune.measure.engine_errors import EngineError
from tabletune.measure.probe import ProbeError, probe_engine
from tabletune.measure.progress import Progress
from tabletune.measure.qualify_fallback import NothingQualified
from tabletune.pipeline.identify import Unsupported, identify_target
from tabletune.pipeline.request_checks import RequestError
from tabletune.pipeline.requests import output_room_tok, sample_prompts, step_time_requests
from tabletune.pipeline.workspace import Workspace, WorkspaceError

GO_ON = 75
"""Exit status: the time limit came first; the same command goes on (EX_TEMPFAIL)."""
VALIDATE = "with --model: validate the table on that engine too, and compare what comes of it"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    begun_s = time.monotonic()
    options = _parser().parse_args(arguments)
    try:
        scenario = load_scenario(options.scenario)
        if options.print_profile_command:
            print(profile_command(scenario, options))
            return 0
        if options.simulate and options.out is not None:
            simulate(scenario, options.out)
            return 0
        if options.work is None or options.engine is None or options.out is None:
            print("expected --work, --engine and --out", file=sys.stderr)
            return 1
        return run(scenario, options, begun_s)
    except (
        *(ScenarioError, WorkspaceMismatchError, ComparisonError),
        *(EngineError, EngineApiError, ProbeError, Unsupported, NothingQualified),
        *(AcceptanceError, RequestError, WorkspaceError),
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run(scenario: Scenario, options: argparse.Namespace, begun_s: float) -> int:
    """Boot, measure what the folder lacks, compare, write; the exit status."""
    folder = options.work / "bench"
    if options.validate and not options.model:
        print("expected --model with --validate, found none", file=sys.stderr)
        return 1
    if options.model and options.records_of:
        print("expected --model or --records-of, found both", file=sys.stderr)
        return 1
    if options.model:
        request = request_of(scenario, options.engine, options.model, options.drafter)
    else:
        request = read_request(scenario, options.work, options.engine)
    same_environment(scenario, options.work, measured=bool(options.model))
    target = identify_target(request, options.engine)
    evidence = None
    if not options.model:
        evidence = read_evidence(options.work, target.fingerprint, options.records_of)
    with (
        TerminalProgress() as progress,
        bench_session([scenario], request, target, folder, progress) as session,
        further_replicas([scenario], request, target, folder) as further,
    ):
        evidence = evidence or measure(request, target, options.work, session, options.validate)
        facts = Facts(request, target, evidence, Workspace(options.work))
        engine = bench_engine(session, evidence, folder, booted_with(scenario), further)
        return compare_scenario(scenario, facts, engine, options, begun_s + options.limit_s)


def booted_with(scenario: Scenario) -> tuple[float, ...] | None:
    """The survival of an engine that was just booted for a scenario."""
    return scenario.traffic[0].survival if scenario.traffic else None


def compare_scenario(
    scenario: Scenario,
    facts: Facts,
    engine: BenchEngine,
    options: argparse.Namespace,
    until_s: float,
) -> int:
    """All of a scenario on an engine that runs already; the exit status.

    options: `engine`, `out`, `work`.
    """
    progress = engine.progress
    first = scenario.traffic[0] if scenario.traffic else None
    tuned = facts.tuned(first, first=True)
    # By fingerprint and table: windows of another model, engine or tuned table are not this one's.
    measured_as = f"{facts.evidence.fingerprint.identity[:16]}-{tuned.content_hash[:8]}"
    result = Result(
        scenario=scenario,
        cells=Cells(options.work / "bench" / scenario.name / "cells" / measured_as),
        command=told_of_this(),
        engine=probe_engine(options.engine),
        out=options.out,
        work=options.work,
        boot_time_s=engine.live.engine.boot_time_s,
    )
    result.table_notes, result.validated = tuned.table.notes, facts.validated(tuned)
    known = facts.known(first, first=True)
    engine.know(scenario, known)
    if first is not None:
        engine.switch(first)
    if "controller" in scenario.policies:
        engine.promote(promoted_version(scenario, tuned, known))
        if engine.adapts:
            progress.say(f"the controller is left out: {engine.adapts}")
            result.controller_left_out = engine.adapts
    driven = facts.request
    if scenario.prompt_tok is not None:
        driven = dataclasses.replace(driven, context_tok=scenario.prompt_tok)
    requests, prompt_tok = step_time_requests(driven, sample_prompts(driven), engine.live, progress)
    result.prompt_tok = prompt_tok
    if scenario.prompt_tok is not None and prompt_tok != scenario.prompt_tok:
        found = f"prompts of {prompt_tok:.0f} tokens instead of {scenario.prompt_tok}"
        raise ComparisonError(found, "the scenario needs a longer --max-model-len")
    comparison = Comparison(
        scenario=scenario,
        engine=engine,
        requests=requests,
        cells=result.cells,
        boot=secrets.token_hex(4),
        progress=progress,
        until_s=until_s,
        longest_tok=output_room_tok(engine.live, prompt_tok),
    )
    try:
        return _all_bouts(comparison, facts, result, progress)
    finally:
        result.policies_cost = _report(engine)
        write_result(result)


def _all_bouts(comparison: Comparison, facts: Facts, result: Result, progress: Progress) -> int:
    scenario, engine = comparison.scenario, comparison.engine
    for bout in bouts(scenario):
        first = not scenario.traffic or bout.traffic == scenario.traffic[0]
        known = facts.known(bout.traffic, first)
        stale = None if first else tuple(facts.tuned(scenario.traffic[0], True).table.dense())
        compared = _adapting(arms(scenario, known, stale), engine)
        if bout.traffic is not None:
            engine.switch(bout.traffic)
        result.note_bout(bout, compared)
        try:
            comparison.compare(bout, compared)
        except OutOfTimeError:
            progress.say("out of time: start the same command again to go on")
            return GO_ON
        result.controller[bout.label] = engine.controller()
        write_result(result)
        progress.say(result.line(bout.label))
    return 0


def _adapting(compared: list[Arm], engine: BenchEngine) -> list[Arm]:
    return [arm for arm in compared if arm.how != "controller" or not engine.adapts]


def _report(engine: BenchEngine) -> dict[str, object]:
    try:
        return dict(engine.report())
    except Exception as error:  # the engine may have died: the result is written all the same
        return {"unknown": repr(error)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("scenario")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--engine", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--records-of", default="", help="a fingerprint's first digits")
    parser.add_argument("--simulate", action="store_true", help="in the simulator; needs --out")
    parser.add_argument("--print-profile-command", action="store_true")
    parser.add_argument("--model", default="")
    parser.add_argument("--drafter", default="")
    parser.add_argument("--validate", action="store_true", help=VALIDATE)
    return parser


if __name__ == "__main__":
    sys.exit(main())
