"""Looks at many deployments: one after the other, or several at once where stores are far away."""

import math
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.watch import WatchResult, watch
from tabletune.maintain.watch_state import WatchState
from tabletune.measure.clock import Clock
from tabletune.measure.environments import EngineEnvironments
from tabletune.store.base import Store
from tabletune.store.errors import StoreError
from tabletune.store.open_snapshots import open_snapshots
from tabletune.store.opening import open_store
from tabletune.store.snapshots import SnapshotReader

#: Looks at once where a store is in S3: nearly all of the time is waiting for answers.
REMOTE_WORKERS: Final = 16


def watch_all(
    deployments: Sequence[Deployment],
    state: WatchState,
    environments: EngineEnvironments,
    clock: Clock,
    store_at: Callable[[str], Store] = open_store,
    snapshots_at: Callable[[str], SnapshotReader] = open_snapshots,
    others: Collection[str] = (),
) -> list[WatchResult]:
    """One result for each deployment, in their order; never raises for what is wrong with some.

    Args:
        state: changed in place; what belongs to no deployment any more is forgotten.
        store_at, snapshots_at: open what a deployment's `store` names.
        others: names of deployments that are looked at another time, and so not forgotten.
    """

    def look(one: Deployment) -> WatchResult:
        try:
            store, snapshots = store_at(one.store), snapshots_at(one.store)
        except StoreError as error:
            return WatchResult(one.name, problem=f"{type(error).__name__}: {error}")
        return watch(one, store, state, environments, clock, snapshots)

    if any("://" in one.store and not one.store.startswith("file:") for one in deployments):
        with ThreadPoolExecutor(REMOTE_WORKERS, "watch") as pool:
            results = list(pool.map(look, deployments))
    else:
        results = [look(one) for one in deployments]
    now_s = datetime.fromisoformat(clock.utc()).timestamp()
    for one in results:
        known_age = one.age_d is not None and math.isfinite(one.age_d)
        age_s = one.age_d * 86400 if known_age and one.age_d is not None else None
        state.note(one.deployment, now_s, one.retune, bool(one.problem), age_s)
    names = {one.name for one in deployments} | set(others)
    state.keep_only(names, {one.table_version for one in results})
    return results
