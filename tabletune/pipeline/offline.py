"""What needs no engine: building the table again from a folder's measurements."""

from tabletune.pipeline.build import Build, Evidence, build_version
from tabletune.pipeline.plans import padded_tokens
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.workspace import Workspace, WorkspaceError
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.base import Record
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.plan import CapturePlan
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile


def load_evidence(workspace: Workspace) -> Evidence:
    """The newest complete set of measurements in the folder.

    Raises:
        WorkspaceError: no fingerprint has all of them, or a record cannot be read.
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
            ]:
                return Evidence(fingerprint, plan, qualification, profile, prior)
            case _:
                continue
    raise WorkspaceError(
        folder, "no complete set of measurements is there", "run `tabletune run` in this folder"
    )


def rebuild(workspace: Workspace) -> Build:
    """Build the table from what the folder holds."""
    evidence = load_evidence(workspace)
    fingerprint = evidence.fingerprint
    padded = padded_tokens(
        evidence.plan, fingerprint.engine, fingerprint.device, fingerprint.method
    )
    return build_version(RunRequest.load(workspace.request_path), evidence, padded)
