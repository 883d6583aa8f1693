"""A deployment's records: what an earlier run of it left in its folder, or measured now."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from dataclasses import dataclass

from bench.controller_engine import prior_of
from bench.evaluation.arms import Known, expected_tokens_of
from bench.evaluation.scenario import Scenario, Traffic
from tabletune.durable_file import write_durably
from tabletune.measure.clock import SystemClock
from tabletune.measure.validate import conclude
from tabletune.pipeline.build import Build, Evidence, build_version
from tabletune.pipeline.corrected import keep_correction, with_corrections
from tabletune.pipeline.identify import Target
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.session import EngineSession
from tabletune.pipeline.stage_acceptance import stage_acceptance
from tabletune.pipeline.stage_profile import stage_profile
from tabletune.pipeline.stage_qualify import stage_qualify
from tabletune.pipeline.stage_validate import validate_on_plugin_engine
from tabletune.pipeline.workspace import Workspace
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.evidence import expected_tokens_of as measured_tokens
from tabletune.records.evidence import surface_of
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.plan import CapturePlan
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict

ENVIRONMENT = "engine_environment.json"


class WorkspaceMismatchError(RuntimeError):
    """The folder does not hold what the scenario needs.

    Attributes: `folder`, `found`, `advice`.
    """

    def __init__(self, folder: pathlib.Path, found: str, advice: str) -> None:
        self.folder, self.found, self.advice = folder, found, advice
        super().__init__(f"{folder}: {found}; {advice}")


@dataclass(frozen=True)
class Facts:
    """A deployment: what was asked for, what it runs on, and its records.

    workspace: where its records are kept, with what validations made of its table.
    """

    request: RunRequest
    target: Target
    evidence: Evidence
    workspace: Workspace

    def tuned(self, traffic: Traffic | None, first: bool) -> TableVersion:
        """TableTune's table: for the traffic that it was measured under built from its own
        measured prior, and as validations have corrected it, whether it then passed or not (see
        `validated`); after a switch from the true survival."""
        _, tuned = self._builds(traffic, first)
        return tuned.version

    def _builds(self, traffic: Traffic | None, first: bool) -> tuple[Build, Build]:
        """As built, and as validations have corrected it."""
        evidence = self.evidence
        if traffic is not None and not first:
            prior = prior_of(evidence.prior, list(traffic.survival))
            evidence = dataclasses.replace(evidence, prior=prior)
        built = build_version(self.request, evidence, evidence.padded_tokens())
        if not first:
            return built, built
        return built, with_corrections(self.workspace, evidence.fingerprint.identity, built)

    def validated(self, version: TableVersion) -> dict[str, object] | None:
        """What the validation on this engine said of a version; None where there was none."""
        identity = self.evidence.fingerprint.identity
        verdict = self.workspace.load(identity, Verdict, _verdict_name(version))
        if verdict is None:
            return None
        return {"passed": verdict.passed, "reasons": list(verdict.reasons)}

    def known(self, traffic: Traffic | None, first: bool) -> Known:
        """For the arms of a comparison under a traffic."""
        built, tuned = self._builds(traffic, first)
        evidence, plan = self.evidence, self.evidence.plan
        if traffic is None:
            tokens = measured_tokens(evidence.prior)
        else:
            tokens = expected_tokens_of(traffic.survival)
        return Known(
            surface=surface_of(evidence.profile, evidence.padded_tokens(), evidence.prior),
            envelope=evidence.qualification.envelope,
            lengths=plan.lengths,
            max_num_seqs=self.request.max_num_seqs,
            longest=plan.max_draft_length,
            expected_tokens=tokens,
            tuned=tuple(tuned.version.table.dense()),
            built=tuple(built.version.table.dense()),
        )


def read_request(scenario: Scenario, folder: pathlib.Path, engine: pathlib.Path) -> RunRequest:
    """What a folder's deployment was asked for, checked against the scenario.

    Raises:
        WorkspaceMismatchError: another deployment, or none.
    """
    try:
        request = RunRequest.load(folder / "request.json")
    except FileNotFoundError as error:
        advice = "name --model (and --drafter), and it is measured first"
        raise WorkspaceMismatchError(folder, "no request.json", advice) from error
    request = dataclasses.replace(request, engine=str(engine))
    for name, wanted in (
        ("method", scenario.method),
        ("max_num_seqs", scenario.max_num_seqs),
        ("max_draft_length", scenario.max_draft_length),
        ("speculative_extra", scenario.speculative_extra()),
        ("engine_args", scenario.engine_args),
    ):
        found = getattr(request, name)
        if found != wanted:
            raise WorkspaceMismatchError(
                folder,
                f"its {name} is {found!r}, the scenario's {wanted!r}",
                "use the folder of the scenario's own deployment",
            )
    return request


def request_of(scenario: Scenario, engine: pathlib.Path, model: str, drafter: str) -> RunRequest:
    """What a scenario's deployment is to be asked for, to measure it."""
    return RunRequest(
        model=model,
        method=scenario.method,
        engine=str(engine),
        drafter=drafter or None,
        max_draft_length=scenario.max_draft_length,
        max_num_seqs=scenario.max_num_seqs,
        engine_args=scenario.engine_args,
        speculative_extra=scenario.speculative_extra(),
    )


def same_environment(scenario: Scenario, folder: pathlib.Path, measured: bool) -> None:
    """Refuse a folder whose records were measured under other variables of the engine, which
    neither a request nor a fingerprint tells. measured: its records are about to be measured, and
    so the variables are written down.

    Raises:
        WorkspaceMismatchError: they are others, as far as that was written down.
    """
    path = folder / "bench" / ENVIRONMENT
    if path.exists():
        found = json.loads(path.read_text())
        if found != scenario.engine_environment:
            raise WorkspaceMismatchError(
                folder,
                f"its records are of {found}, the scenario's engine_environment is "
                f"{scenario.engine_environment}",
                "use another folder",
            )
    elif measured:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, json.dumps(scenario.engine_environment).encode())


def measure(
    request: RunRequest,
    target: Target,
    folder: pathlib.Path,
    session: EngineSession,
    correcting: bool = False,
) -> Evidence:
    """What the folder does not hold yet is measured, on the session's engine, and kept there.

    correcting: then validate the table on that engine, and keep what it is corrected to.

    Raises:
        EngineError, NothingQualified, AcceptanceError, WorkspaceError: see there.
    """
    workspace = Workspace(folder)
    with workspace.locked():
        if not workspace.request_path.exists():
            workspace.write(workspace.request_path, request.to_json().encode())
        workspace.save(target.fingerprint.identity, target.fingerprint)
        run = RunContext(request, target, workspace, session, SystemClock(), session.progress)
        plan, qualification = stage_qualify(run)
        prior = stage_acceptance(run, plan)
        profile = stage_profile(run, plan, qualification, measured_tokens(prior))
        evidence = Evidence(target.fingerprint, plan, qualification, profile, prior)
        if correcting:
            _correct(run, evidence)
    return evidence


def _correct(run: RunContext, evidence: Evidence) -> None:
    """Validate the table on the measuring engine, from where earlier validations left it, and
    keep what it is corrected to. Once: a version with a verdict is not validated again."""
    workspace, identity = run.workspace, evidence.fingerprint.identity
    built = build_version(run.request, evidence, evidence.padded_tokens())
    build = with_corrections(workspace, identity, built)
    if workspace.load(identity, Verdict, _verdict_name(build.version)) is not None:
        return
    found = validate_on_plugin_engine(run, evidence.plan, build)
    if found.corrected is not None:
        keep_correction(workspace, identity, build.version, found.version)
    verdict = conclude(found.setup, found.bench, found.outcome)
    workspace.save(identity, verdict, _verdict_name(found.version))
    run.progress.say("validated on this engine: " + ("passed" if verdict.passed else "failed"))


def _verdict_name(version: TableVersion) -> str:
    """Of a verdict to which no other engine was asked."""
    return f"plugin-engine-verdict-{version.content_hash[:16]}"


def read_evidence(folder: pathlib.Path, fingerprint: Fingerprint, records_of: str = "") -> Evidence:
    """The records of a folder.

    records_of: take those of this fingerprint (its first digits), though the engine at hand has
        another: for a host that differs in nothing that changes step times.

    Raises:
        WorkspaceMismatchError: records are missing.
    """
    workspace, identity = Workspace(folder), fingerprint.identity
    there = sorted(path.name for path in (folder / "records").glob("*"))
    if records_of:
        matching = [name for name in there if name.startswith(records_of[:16])]
        if len(matching) != 1:
            found = f"{len(matching)} fingerprints begin with {records_of!r} among {there}"
            raise WorkspaceMismatchError(folder, found, "name one of those")
        identity = matching[0]
    found = workspace.load(identity, Fingerprint) or fingerprint
    plan = workspace.load(identity, CapturePlan)
    qualification = workspace.load(identity, Qualification)
    profile = workspace.load(identity, Profile)
    prior = workspace.load(identity, AcceptancePrior)
    if plan is None or qualification is None or profile is None or prior is None:
        raise WorkspaceMismatchError(
            folder,
            f"plan, qualification, profile or prior is missing for {identity[:16]}; records are "
            f"there for {there}",
            "name --model (and --drafter) to measure them, or others with --records-of",
        )
    return Evidence(found, plan, qualification, profile, prior)
