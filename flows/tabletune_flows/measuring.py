"""What every measuring flow does: take the device, run the stages, tell MLflow and Prefect."""

from collections.abc import Sequence

from prefect.runtime import flow_run

from tabletune.maintain.deployments import Deployment
from tabletune.pipeline.staged_run import StagedRun
from tabletune_flows.settings import engine_root, outbox_path
from tabletune_tasks import prepare, publish, stages, track
from tabletune_tasks.engine_slot import engine_slot
from tabletune_tasks.run_progress import run_logger


def identified(
    deployment: Deployment, engine: str | None, fresh: bool = False, revalidate: bool = False
) -> StagedRun:
    """The run, ready to measure."""
    return prepare.identify(deployment, engine, engine_root(), fresh, revalidate)


def measured(deployment: Deployment, run: StagedRun) -> bool:
    """Measure, build and validate with the device held; whether the verdict passed.

    Engines are stopped and the device is free again afterwards, however it ends.
    """
    what = f"{flow_run.name or 'a run'} of {deployment.name}"
    with engine_slot(run.target, what), run.workspace.locked(), run:
        stages.qualify(run)
        stages.count_acceptance(run)
        stages.profile(run)
        stages.build(run)
        return stages.validate(run)


def kept(deployment: Deployment, run: StagedRun) -> str | None:
    """Write the report, and keep what MLflow is to know, before a pointer moves.

    Without it a process that ends just after the move would leave a table in force of which
    MLflow never hears. Returns the report's path.
    """
    report = _report(run)
    track.keep_run(deployment.name, _key(run), run, report, outbox_path(deployment.out))
    return report


def told(
    deployment: Deployment,
    run: StagedRun,
    headline: str,
    reasons: Sequence[str] = (),
    report: str | None = None,
) -> str:
    """Report, log and publish; returns the run's page in MLflow. Nothing here undoes a result.

    `report`: its path where it is written already.
    """
    report = report or _report(run)
    outbox = outbox_path(deployment.out)
    tracked = track.track_run(deployment.name, _key(run), run, report, outbox)
    mirrored(deployment, run)
    publish.publish_run(deployment.name, run, headline, reasons, report, tracked.page)
    return tracked.page


def mirrored(deployment: Deployment, run: StagedRun) -> None:
    """MLflow's aliases like the pointers."""
    channels = deployment.channels
    track.mirror_aliases(deployment.name, run.store, channels.live, channels.canary)


def _key(run: StagedRun) -> str:
    """The same for the same measurements: a run that takes up what a killed one measured, and
    perhaps kept for MLflow, is no second run there."""
    verdict = "unvalidated" if run.verdict is None else run.verdict.content_hash[:24]
    return f"{run.build_made.version.content_hash[:24]}.{verdict}"


def _report(run: StagedRun) -> str | None:
    try:
        return stages.report(run)
    except Exception as error:  # the measurements, the verdict and the pointer stand without it
        run_logger().warning("no report: %s", error)
        return None
