"""The main job: fingerprint → plan captures → qualify → acceptance → profile → table →
validate → promote → report.

Acceptance comes before the profile, so that the profile's grid can be refined where the
goodput curves really cross.
"""

import pathlib
from dataclasses import dataclass

from tabletune.measure.clock import Clock
from tabletune.measure.progress import Progress
from tabletune.pipeline.build import Build, Evidence
from tabletune.pipeline.identify import Target
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.serve import ServeCommands
from tabletune.pipeline.staged_run import StagedRun
from tabletune.pipeline.workspace import Workspace
from tabletune.records.verdict import Verdict
from tabletune.store.base import Store
from tabletune.store.promotion import Move


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
    staged = StagedRun(
        request, target, workspace, store, clock, progress, steps.fresh, steps.revalidate
    )
    if steps.validate:
        staged.check_store()
    with staged:
        staged.qualify()
        staged.count_acceptance()
        staged.profile()
        staged.build()
        if steps.validate:
            staged.validate()
    verdict = staged.verdict
    if steps.promote and verdict is not None and verdict.passed:
        staged.promote(who)
    progress.start("report")
    return RunResult(
        staged.evidence,
        staged.build_made,
        verdict,
        staged.move,
        staged.commands(),
        staged.report(),
        staged.boot_times_s,
    )
