"""The report of a run."""

import pathlib

from tabletune.pipeline.build import Build, Evidence
from tabletune.pipeline.plans import padding_grid
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.serve import ServeCommands
from tabletune.pipeline.workspace import WorkspaceError
from tabletune.records.table import Table
from tabletune.records.verdict import Verdict
from tabletune.report.report_input import ReportFiles, ReportInput
from tabletune.report.write import write_report


class ReportError(WorkspaceError):
    """The report cannot be written; nothing else depends on it."""

    def __init__(self, folder: pathlib.Path, error: OSError) -> None:
        super().__init__(
            folder,
            f"the report cannot be written ({error.strerror})",
            "everything else of this run is done and kept, a promotion too (see `tabletune "
            "show`); free space and run again, which measures nothing anew",
        )


def report_run(
    request: RunRequest,
    evidence: Evidence,
    build: Build,
    verdict: Verdict | None,
    incumbent: Table | None,
    commands: ServeCommands,
    generated_at: str,
    folder: pathlib.Path,
) -> ReportFiles:
    """Write the HTML report and its plots into `folder`.

    Raises:
        ReportError: it cannot be written.
    """
    padded = evidence.padded_tokens()
    report = ReportInput(
        title=f"{pathlib.PurePath(request.model).name} with {request.method}",
        generated_at=generated_at,
        fingerprint=evidence.fingerprint,
        plan=evidence.plan,
        qualification=evidence.qualification,
        profile=evidence.profile,
        prior=evidence.prior,
        version=build.version,
        incumbent=incumbent,
        verdict=verdict,
        batch_sizes=tuple(range(1, request.max_num_seqs + 1)),
        predicted_goodput_tok_s=build.predicted_goodput_tok_s,
        padded_tok=None if padded is None else padding_grid(evidence.plan, padded),
        engine_args=commands.as_text(),
        remarks=_remarks(request),
    )
    try:
        return write_report(report, folder)
    except OSError as error:
        raise ReportError(folder, error) from error


def _remarks(request: RunRequest) -> tuple[str, ...]:
    remarks: list[str] = []
    if "dummy" in " ".join(request.engine_args):
        remarks.append("The weights are dummies: step times are real, what is generated is not.")
    if request.synthetic:
        remarks.append("The acceptance is synthetic: the engine was told how much to accept.")
    return tuple(remarks)
