"""Tasks that tell MLflow; none of them ever fails a flow."""

import pathlib
from dataclasses import dataclass

from tabletune.pipeline.staged_run import StagedRun
from tabletune.pipeline.tracking import experiment_name, tracking_entry
from tabletune.records.tracking_entry import TrackingEntry
from tabletune.store.base import Store
from tabletune.store.errors import StoreError
from tabletune_tasks.calls import library_task
from tabletune_tasks.mlflow_log import Logged, Tracker, TrackerError, tracking_url
from tabletune_tasks.outbox import Outbox
from tabletune_tasks.run_progress import run_logger

#: How long a run waits for another one that sends what waits.
OTHERS_S = 120.0


@dataclass(frozen=True)
class Tracked:
    """What became of an entry. `page`: its page in MLflow, empty while it waits or without one."""

    page: str = ""
    waits: bool = False


@library_task("keep for tracking", timeout_s=120)
def keep_run(
    deployment: str, key: str, run: StagedRun, report: str | None, outbox: pathlib.Path
) -> bool:
    """Put a run into the outbox, to be logged later by whichever run gets to it; whether it is
    kept. Without a tracking server nothing is."""
    return bool(tracking_url()) and _kept(deployment, key, run, report, outbox)


@library_task("track run", timeout_s=600)
def track_run(
    deployment: str, key: str, run: StagedRun, report: str | None, outbox: pathlib.Path
) -> Tracked:
    """Log a run, after whatever still waits; what cannot be logged now waits in `outbox`."""
    url = tracking_url()
    if not url:
        run_logger().info("MLFLOW_TRACKING_URI is not set: nothing is tracked")
        return Tracked()
    # First kept, then sent: nothing is lost if this process ends meanwhile.
    if not _kept(deployment, key, run, report, outbox):
        return Tracked()
    box, sent = Outbox(outbox), dict[str, Logged]()
    tracker = Tracker(url)

    def send(waiting: TrackingEntry) -> None:
        sent[waiting.key] = tracker.send(waiting)

    result = box.empty(send, TrackerError, OTHERS_S)
    if result.stopped_by:
        run_logger().warning("%s; %d wait in %s", result.stopped_by, result.left, outbox)
    logged = sent.get(key)
    return Tracked(logged.run_url) if logged else Tracked(waits=True)


@library_task("send what waits", timeout_s=600)
def send_waiting(outbox: pathlib.Path) -> int:
    """Log what could not be logged earlier; returns how many entries still wait."""
    url, box = tracking_url(), Outbox(outbox)
    if not url or not box.waiting():
        return len(box.waiting())
    result = box.empty(Tracker(url).send, TrackerError)
    if result.stopped_by:
        run_logger().warning("%s; %d wait in %s", result.stopped_by, result.left, outbox)
    return result.left


@library_task("mirror aliases", timeout_s=300)
def mirror_aliases(deployment: str, store: Store, live: str, canary: str | None) -> dict[str, str]:
    """Make MLflow's aliases say what the pointers say; returns what was changed.

    ``champion`` and ``previous`` are the live channel's, ``canary`` is the canary channel's.
    """
    url = tracking_url()
    if not url:
        return {}
    try:
        pointer, _ = store.read_pointer(live)
        trial = None if canary is None else store.read_pointer(canary)[0]
        wanted = {
            "champion": "" if pointer is None else pointer.table_version,
            "previous": "" if pointer is None else pointer.previous_version,
            "canary": "" if trial is None else trial.table_version,
        }
        return Tracker(url).mirror(experiment_name(deployment), wanted)
    except (TrackerError, StoreError) as error:
        run_logger().warning("aliases are as they were: %s", error)
        return {}


@library_task("find comparison", timeout_s=120)
def comparison_page(deployment: str, versions: tuple[str, ...]) -> str:
    """MLflow's page with the runs of these table versions side by side; empty without one."""
    url = tracking_url()
    if not url:
        return ""
    try:
        tracker, name = Tracker(url), experiment_name(deployment)
        known = tracker.versions(name)
        runs = [known[version][1] for version in versions if version in known]
        return tracker.compare_url(name, runs) if len(runs) == len(versions) else ""
    except TrackerError as error:
        run_logger().warning("no link to a comparison: %s", error)
        return ""


def _kept(
    deployment: str, key: str, run: StagedRun, report: str | None, outbox: pathlib.Path
) -> bool:
    entry = tracking_entry(deployment, key, run, pathlib.Path(report) if report else None)
    try:
        Outbox(outbox).put(entry)
    except OSError as error:  # a promotion does not wait for space
        run_logger().warning("not kept for MLflow: %s", error)
        return False
    return True
