"""The task that looks at every deployment, cheaply."""

import pathlib

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.watch import WatchResult, watch
from tabletune.maintain.watch_state import load_state, save_state
from tabletune.measure.clock import SystemClock
from tabletune.measure.environments import EngineEnvironments
from tabletune.store.errors import StoreError
from tabletune.store.open_snapshots import open_snapshots
from tabletune.store.opening import open_store
from tabletune_tasks.calls import library_task
from tabletune_tasks.run_progress import run_logger


@library_task("look at deployments", timeout_s=1800)
def look(
    deployments: tuple[Deployment, ...], state: pathlib.Path, engine_root: pathlib.Path
) -> list[WatchResult]:
    """What each deployment's table needs. `state`: a file of what was known last time."""
    known, environments, clock = load_state(state), EngineEnvironments(engine_root), SystemClock()
    found: list[WatchResult] = []
    for deployment in deployments:
        try:
            store = open_store(deployment.store)
            snapshots = open_snapshots(deployment.store)
        except StoreError as error:
            found.append(WatchResult(deployment.name, problem=str(error)))
            continue
        found.append(watch(deployment, store, known, environments, clock, snapshots))
    known.keep_only({d.name for d in deployments}, {r.table_version for r in found})
    try:
        save_state(known, state)
    except OSError as error:  # the next look takes longer, and that is all
        run_logger().warning("what is known now is not kept: %s", error)
    return found
