"""What `tabletune flows` does: serve, deploy and run."""

import contextlib
import pathlib
from typing import Any

from prefect import serve
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists

from tabletune.maintain.deployments import load_deployments
from tabletune.pipeline.request import RequestError
from tabletune_flows import serving
from tabletune_flows.settings import deployments_path
from tabletune_tasks.names import pool_name


def serve_all(config: pathlib.Path, limit: int) -> None:
    """Serve every flow until this process is interrupted.

    Raises:
        DeploymentsError: the file cannot be used.
    """
    made = serving.served(load_deployments(config), config)
    serving.install_automations()
    serve(*made, limit=limit, print_starting_message=True)


def deploy_all(config: pathlib.Path) -> dict[str, str]:
    """Register every flow with a process work pool; served name → pool.

    Workers need this same installation; code is not copied.

    Raises:
        DeploymentsError: the file cannot be used.
    """
    made = serving.served(load_deployments(config), config)
    serving.install_automations()
    pools: dict[str, str] = {}
    with get_client(sync_client=True) as client:
        for one in made:
            pool = pool_name(str(one.name))
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
            one.work_pool_name = pool
            one.apply()
            pools[f"{one.flow_name}/{one.name}"] = pool
    return pools


def run_one(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Run one flow in this process.

    Raises:
        RequestError: there is no such flow, or it takes no such parameter.
        DeploymentsError: the file cannot be used.
    """
    flows = {flow.name: flow for flow in serving.EVERY}
    flow = flows.get(name)
    if flow is None:
        raise RequestError("NAME", f"one of {', '.join(sorted(flows))}", name, "choose one")
    known = flow.parameters.properties
    wrong = sorted(name for name in parameters if name not in known)
    if wrong:
        raise RequestError("--param", f"{', '.join(known)}", wrong[0], "correct its name")
    # Before any server is started: what is wrong in the file is told in a line, not a traceback.
    load_deployments(pathlib.Path(parameters.get("config") or deployments_path()))
    return dict(flow(**parameters))
