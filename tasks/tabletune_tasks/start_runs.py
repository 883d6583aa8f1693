"""The tasks that start other flows' runs."""

import hashlib
from typing import Any

from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.upgrade import UpgradeCandidate
from tabletune.maintain.watch import WatchResult
from tabletune_tasks.calls import library_task
from tabletune_tasks.names import served_name
from tabletune_tasks.run_progress import run_logger


@library_task("start retune", timeout_s=120, retries=2)
def start_retune(deployment: Deployment, result: WatchResult, config: str, day: str) -> str:
    """Start a run of retune for what a look found; returns the run's id, empty if it cannot.

    The same finding on the same day is the same run, however often it is found. `day` is the
    day as text.
    """
    facts = f"{deployment.name} {result.fingerprint} {result.table_version} {result.fresh} {day}"
    name = served_name("retune", deployment.gpu)
    try:
        run: Any = run_deployment(
            name,
            parameters={"deployment": deployment.name, "config": config, "fresh": result.fresh},
            timeout=0,
            idempotency_key=hashlib.sha256(facts.encode()).hexdigest(),
            as_subflow=False,
            tags=[deployment.name, *(change.kind for change in result.changes)],
        )
    except ObjectNotFound:
        run_logger().error("%s is not served: run `tabletune flows serve` or `deploy`", name)
        return ""
    return str(run.id)


@library_task("start upgrade", timeout_s=120, retries=2)
def start_upgrade(deployment: Deployment, candidate: UpgradeCandidate, config: str) -> bool:
    """Start a run of upgrade for another engine; whether that run has not ended yet.

    The same candidate is tried once for a table, however often it is found.
    """
    name = served_name("upgrade", deployment.gpu)
    facts = f"{deployment.name} {candidate.today} {candidate.requirement}"
    wanted = {"deployment": deployment.name, "config": config}
    try:
        run: Any = run_deployment(
            name,
            parameters=wanted | {"candidate": candidate.requirement},
            timeout=0,
            idempotency_key=hashlib.sha256(facts.encode()).hexdigest(),
            as_subflow=False,
            tags=[deployment.name, "upgrade"],
        )
    except ObjectNotFound:
        run_logger().error("%s is not served: run `tabletune flows serve` or `deploy`", name)
        return False
    return run.state is None or not run.state.is_final()
