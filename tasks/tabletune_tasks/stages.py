"""The stages of a run as tasks. Each returns a sentence for the log; the run holds the rest."""

from tabletune.pipeline.staged_run import StagedRun
from tabletune_tasks.calls import library_task

#: A stage that takes longer hangs; its engines are stopped.
STAGE_LIMIT_S = 4 * 3600.0


@library_task("qualify", timeout_s=STAGE_LIMIT_S)
def qualify(run: StagedRun) -> str:
    """Plan captures and qualify the engine."""
    record = run.qualify()
    failed = sum(not check.passed for check in record.checks)
    return f"{len(record.checks)} checks, {failed} failed"


@library_task("count acceptance", timeout_s=STAGE_LIMIT_S)
def count_acceptance(run: StagedRun) -> str:
    """Count acceptance on the sample prompts."""
    return f"{run.count_acceptance().prompt_count} prompts"


@library_task("profile", timeout_s=STAGE_LIMIT_S)
def profile(run: StagedRun) -> str:
    """Measure step times."""
    record = run.profile()
    return f"{len(record.cells)} cells in {record.wall_time_s:.0f} s"


@library_task("build", timeout_s=600)
def build(run: StagedRun) -> str:
    """Build the candidate; returns its version."""
    return run.build().version.content_hash


@library_task("validate", timeout_s=STAGE_LIMIT_S)
def validate(run: StagedRun) -> bool:
    """Measure the candidate against every alternative; returns whether it passed."""
    return run.validate().passed


@library_task("report", timeout_s=600)
def report(run: StagedRun) -> str:
    """Write the HTML report; returns its path."""
    return str(run.report())
