"""The task that looks at every deployment, cheaply."""

import pathlib

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.watch import WatchResult
from tabletune.maintain.watch_all import watch_all
from tabletune.maintain.watch_state import load_state, save_state
from tabletune.measure.clock import SystemClock
from tabletune.measure.environments import EngineEnvironments
from tabletune_tasks.calls import library_task
from tabletune_tasks.run_progress import run_logger


@library_task("look at deployments", timeout_s=1800)
def look(
    deployments: tuple[Deployment, ...], state: pathlib.Path, engine_root: pathlib.Path
) -> list[WatchResult]:
    """What each deployment's table needs. `state`: a file of what was known last time."""
    known = load_state(state)
    found = watch_all(deployments, known, EngineEnvironments(engine_root), SystemClock())
    try:
        save_state(known, state)
    except OSError as error:  # the next look takes longer, and that is all
        run_logger().warning("what is known now is not kept: %s", error)
    return found
