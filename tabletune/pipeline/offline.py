"""What needs no engine: building the table again from a folder's measurements."""

from tabletune.pipeline.build import Build, Evidence, build_version
from tabletune.pipeline.corrected import with_corrections
from tabletune.pipeline.identify import request_settings
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.workspace import Workspace, WorkspaceError
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.base import Record
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.plan import CapturePlan
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile


def load_evidence(workspace: Workspace, request: RunRequest) -> Evidence:
    """The newest complete set of measurements in the folder that `request` asked for.

    Raises:
        WorkspaceError: no fingerprint of this request has all of them, or a record cannot be
            read.
    """
    folder = workspace.root / "records"
    identities = sorted(
        (p.parent.name for p in folder.glob("*/profile.json")),
        key=lambda name: (folder / name / "profile.json").stat().st_mtime,
    )
    for identity in reversed(identities):
        records: list[Record | None] = [
            workspace.load(identity, kind)
            for kind in (Fingerprint, CapturePlan, Qualification, Profile, AcceptancePrior)
        ]
        match records:
            case [
                Fingerprint() as fingerprint,
                CapturePlan() as plan,
                Qualification() as qualification,
                Profile() as profile,
                AcceptancePrior() as prior,
            ] if asked_for(request, fingerprint):
                return Evidence(fingerprint, plan, qualification, profile, prior)
            case _:
                continue
    raise WorkspaceError(
        folder,
        "no complete set of measurements of what was last asked for in this folder",
        f"finish it with: tabletune profile --out {workspace.root}",
    )


def asked_for(request: RunRequest, fingerprint: Fingerprint) -> bool:
    """Whether the measurements are of this deployment: another one has another table."""
    drafter = "" if fingerprint.drafter is None else fingerprint.drafter.label
    asked = request_settings(request)
    return (
        fingerprint.model.label == request.model
        and drafter == (request.drafter or "")
        and fingerprint.method == request.method
        and asked.items() <= fingerprint.settings.items()
    )


def rebuild(workspace: Workspace) -> Build:
    """Build the table from what the folder holds, with what validations have corrected."""
    if not workspace.request_path.is_file():
        advice = "name the folder of an earlier run with --out"
        raise WorkspaceError(workspace.root, "no run was started in this folder", advice)
    request = RunRequest.load(workspace.request_path)
    evidence = load_evidence(workspace, request)
    built = build_version(request, evidence, evidence.padded_tokens())
    return with_corrections(workspace, evidence.fingerprint.identity, built)
