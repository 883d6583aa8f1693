"""watch: look at every deployment and start what is needed."""

import pathlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from prefect import flow

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.upgrade import UpgradeCandidate
from tabletune.maintain.watch import WatchResult
from tabletune_flows.outcomes import Outcome, ended
from tabletune_flows.settings import (
    deployments_path,
    engine_root,
    watch_metrics_path,
    watch_state_path,
)
from tabletune_tasks import engines, look, prepare, publish, start_runs


@flow(name="watch", persist_result=False)
def watch(
    config: pathlib.Path | None = None,
    cron: str | None = None,
    timezone: str | None = None,
    start: bool = True,
) -> Any:
    """Look at every deployment: engine, models, settings, age, drift.

    Args:
        config: the deployments file; by default the one that TABLETUNE_DEPLOYMENTS names.
        cron: look only at deployments with this schedule; all by default.
        timezone: and with this time zone.
        start: start retune where something changed, and upgrade where a deployment on `latest`
            has a newer engine or its requirement has moved; otherwise only say so.
    """
    path = config or deployments_path()
    every = prepare.read_deployments(path)
    chosen = tuple(
        one
        for one in every
        if cron in (None, one.schedule.cron) and timezone in (None, one.schedule.timezone)
    )
    names = tuple(one.name for one in every)
    results = look.look(
        chosen, watch_state_path(path), engine_root(), watch_metrics_path(path), names
    )
    newer = engines.upgrades(chosen)
    compared = _compared_first(newer, str(path.absolute())) if start else set[str]()
    needed = [one for one in results if one.retune and one.deployment not in compared]
    day = datetime.now(UTC).date().isoformat()
    by_name = {one.name: one for one in chosen}
    for result in needed if start else ():
        start_runs.start_retune(by_name[result.deployment], result, str(path.absolute()), day)
    publish.publish_watch(results)
    troubled = [r.deployment for r in results if r.problem and r.deployment not in compared]
    counts = f"{len(needed)} to retune, {len(newer)} to upgrade, {len(troubled)} with a problem"
    message = f"{len(results)} looked at, {counts}"
    name: Outcome = "Problems" if troubled else "Looked"
    upgrade = [one.name for one, _ in newer]
    return ended(name, message, retune=_names(needed), upgrade=upgrade, problems=troubled)


def _compared_first(newer: Sequence[tuple[Deployment, UpgradeCandidate]], config: str) -> set[str]:
    """Start upgrades; the deployments whose retune waits until theirs has ended.

    A requirement that moved is what retune would tune for at once, and then there would be
    nothing of before left to compare with.
    """
    going = {one.name: start_runs.start_upgrade(one, candidate, config) for one, candidate in newer}
    return {one.name for one, _ in newer if one.requirement and going[one.name]}


def _names(results: list[WatchResult]) -> list[str]:
    return [result.deployment for result in results]
