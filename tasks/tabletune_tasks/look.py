"""The task that looks at every deployment, cheaply."""

import pathlib

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.watch import WatchResult
from tabletune.maintain.watch_all import watch_all
from tabletune.maintain.watch_metrics import metrics_text, write_metrics
from tabletune.maintain.watch_state import load_state, save_state
from tabletune.measure.clock import SystemClock
from tabletune.measure.environments import EngineEnvironments
from tabletune_tasks.calls import library_task
from tabletune_tasks.run_progress import run_logger


@library_task("look at deployments", timeout_s=1800)
def look(
    deployments: tuple[Deployment, ...],
    state: pathlib.Path,
    engine_root: pathlib.Path,
    metrics: pathlib.Path,
    others: tuple[str, ...] = (),
) -> list[WatchResult]:
    """What each deployment's table needs.

    Args:
        state: a file of what was known last time.
        metrics: a file for Prometheus, written anew.
        others: deployments of the same file that are looked at another time.
    """
    known, engines = load_state(state), EngineEnvironments(engine_root)
    found = watch_all(deployments, known, engines, SystemClock(), others=others)
    try:
        save_state(known, state)
    except OSError as error:  # the next look takes longer, and that is all
        run_logger().warning("what is known now is not kept: %s", error)
    try:
        write_metrics(metrics_text(known.looks), metrics)
    except OSError as error:
        run_logger().warning("no metrics: %s", error)
    return found
