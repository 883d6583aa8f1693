"""watch: look at every deployment and start what is needed."""

import pathlib
from datetime import UTC, datetime
from typing import Any

from prefect import flow

from tabletune.maintain.watch import WatchResult
from tabletune_flows.outcomes import Outcome, ended
from tabletune_flows.settings import deployments_path, engine_root, watch_state_path
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
            has a newer engine; otherwise only say so.
    """
    path = config or deployments_path()
    chosen = tuple(
        one
        for one in prepare.read_deployments(path)
        if cron in (None, one.schedule.cron) and timezone in (None, one.schedule.timezone)
    )
    results = look.look(chosen, watch_state_path(path), engine_root())
    needed = [result for result in results if result.retune]
    day = datetime.now(UTC).date().isoformat()
    by_name = {one.name: one for one in chosen}
    for result in needed if start else ():
        start_runs.start_retune(by_name[result.deployment], result, str(path.absolute()), day)
    newer = engines.upgrades(chosen)
    for one, candidate in newer if start else ():
        start_runs.start_upgrade(one, candidate, str(path.absolute()))
    publish.publish_watch(results)
    troubled = [result.deployment for result in results if result.problem]
    counts = f"{len(needed)} to retune, {len(newer)} to upgrade, {len(troubled)} with a problem"
    message = f"{len(results)} looked at, {counts}"
    name: Outcome = "Problems" if troubled else "Looked"
    upgrade = [one.name for one, _ in newer]
    return ended(name, message, retune=_names(needed), upgrade=upgrade, problems=troubled)


def _names(results: list[WatchResult]) -> list[str]:
    return [result.deployment for result in results]
