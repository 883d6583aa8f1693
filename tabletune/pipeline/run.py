"""The main job: fingerprint → plan captures → qualify → acceptance → profile → table →
validate → promote → report.

Acceptance comes before the profile, so that the profile's grid can be refined where the
goodput curves really cross.
"""

import pathlib
from dataclasses import dataclass

from tabletune.measure.clock import Clock
from tabletune.measure.progress import Progress
from tabletune.pipeline.build import Build, Evidence, build_version, expected_tokens_of
from tabletune.pipeline.identify import Target
from tabletune.pipeline.report_run import report_run
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.serve import ServeCommands, evidence_losses, serve_commands
from tabletune.pipeline.session import EngineSession
from tabletune.pipeline.stage_acceptance import stage_acceptance
from tabletune.pipeline.stage_profile import stage_profile
from tabletune.pipeline.stage_qualify import stage_qualify
from tabletune.pipeline.stage_validate import stage_validate
from tabletune.pipeline.workspace import Workspace
from tabletune.records.pointer import Pointer
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store.base import Store
from tabletune.store.promotion import Move, promote


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        evidence, build: what was measured and made.
        verdict: None where validation was left out.
        move: the promotion; None where the verdict failed or promotion was left out.
        commands: the exact commands and environments that serve with the table.
        report_html: the report's path.
        boot_times_s: seconds to a healthy server, by engine.
    """

    evidence: Evidence
    build: Build
    verdict: Verdict | None
    move: Move | None
    commands: ServeCommands
    report_html: pathlib.Path
    boot_times_s: dict[str, float]


@dataclass(frozen=True)
class RunSteps:
    """Which steps a run takes after measuring."""

    validate: bool = True
    promote: bool = True
    fresh: bool = False
    revalidate: bool = False


def run(
    request: RunRequest,
    target: Target,
    workspace: Workspace,
    store: Store,
    clock: Clock,
    progress: Progress,
    who: str,
    steps: RunSteps | None = None,
) -> RunResult:
    """Tune one deployment.

    Everything that is still valid for the fingerprint is reused: the qualification, the
    acceptance, the profile, and a passing verdict on the same table against the same
    incumbent. With nothing changed no engine is booted.

    Raises:
        EngineError, NothingQualified, AcceptanceError, NoTableError, StoreError,
        WorkspaceError: see there. What was measured until then is kept.
        ReportError: all else is done, only the report could not be written.
    """
    steps = steps or RunSteps()
    workspace.write(workspace.request_path, request.to_json().encode())
    workspace.save(target.fingerprint.identity, target.fingerprint)
    if steps.validate:  # a store that cannot be used shows now, not after the measurements
        store.read_pointer(request.channel)
        store.check_writable()
    with EngineSession(
        request, target.python, target.platform, workspace.logs, progress
    ) as session:
        context = RunContext(request, target, workspace, session, clock, progress, steps.fresh)
        evidence = measure(context)
        build = make_table(context, evidence)
        incumbent_pointer, _ = store.read_pointer(request.channel)
        incumbent = _version(store, incumbent_pointer)
        verdict = None
        if steps.validate:
            verdict = _verdict(context, evidence, build, incumbent, steps.revalidate)
        boot_times_s = dict(session.boot_times_s)
    move = None
    if verdict is not None:
        _keep(store, evidence, build, verdict)
        if steps.promote and verdict.passed:
            move = promote(
                store,
                request.channel,
                build.version.content_hash,
                verdict.content_hash,
                clock.utc(),
                who,
                "a passing verdict",
                expected_version=incumbent_pointer.table_version if incumbent_pointer else "",
            )
    commands = serve_commands(
        request,
        build.version,
        target.fingerprint,
        store.url,
        request.channel,
        evidence_losses(build.version, evidence),
    )
    progress.start("report")
    files = report_run(
        request,
        evidence,
        build,
        verdict,
        None if incumbent is None else incumbent.table,
        commands,
        clock.utc(),
        workspace.reports / build.version.content_hash[:12],
    )
    return RunResult(evidence, build, verdict, move, commands, files.html, boot_times_s)


def measure(context: RunContext) -> Evidence:
    """Qualify, count acceptance, profile; each reused where it is still valid."""
    plan, qualification = stage_qualify(context)
    prior = stage_acceptance(context, plan)
    tokens = expected_tokens_of(prior)
    profile = stage_profile(context, plan, qualification, tokens)
    return Evidence(context.target.fingerprint, plan, qualification, profile, prior)


def make_table(context: RunContext, evidence: Evidence) -> Build:
    """Build the table version and keep it."""
    padded = evidence.padded_tokens()
    build = build_version(context.request, evidence, padded)
    context.workspace.save(context.identity, build.version)
    return build


def _verdict(
    context: RunContext,
    evidence: Evidence,
    build: Build,
    incumbent: TableVersion | None,
    again: bool,
) -> Verdict:
    name = f"verdict-{build.version.content_hash[:16]}"
    kept = (
        None if context.fresh or again else context.workspace.load(context.identity, Verdict, name)
    )
    before = "" if incumbent is None else incumbent.content_hash
    if kept is not None and kept.passed and before in (kept.table_version, kept.incumbent_version):
        context.progress.say(f"passing verdict of {kept.validated_at} reused")
        return kept
    return stage_validate(context, evidence.plan, build.version, incumbent)


def _keep(store: Store, evidence: Evidence, build: Build, verdict: Verdict) -> None:
    """Put everything that the version names into the store before a pointer names it."""
    for record in (
        evidence.fingerprint,
        evidence.plan,
        evidence.qualification,
        evidence.prior,
        evidence.profile,
        build.version,
        verdict,
    ):
        store.put(record)


def _version(store: Store, pointer: Pointer | None) -> TableVersion | None:
    return None if pointer is None else store.get(TableVersion, pointer.table_version)
