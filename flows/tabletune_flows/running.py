"""What `tabletune flows` does: serve, deploy and run."""

import contextlib
import pathlib
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists, ParameterTypeError
from prefect.logging import get_logger
from prefect.logging.configuration import setup_logging
from prefect.settings import PREFECT_API_URL

from tabletune.maintain.deployments import load_deployments
from tabletune.maintain.outage import Outage
from tabletune.measure.clock import SystemClock
from tabletune.pipeline.request import RequestError
from tabletune_flows import serving
from tabletune_flows.patience import serve_patiently
from tabletune_flows.server import check_server, wait_for_server, went_away
from tabletune_flows.settings import deployments_path
from tabletune_tasks import prepare
from tabletune_tasks.names import pool_name


def serve_all(config: pathlib.Path, limit: int, wait: bool = False) -> None:
    """Serve every flow until this process is interrupted, through every outage of the server.

    Args:
        limit: runs at the same time.
        wait: also for a server that does not answer at the start.

    Raises:
        DeploymentsError: the file cannot be used.
        RequestError: the server cannot be used.
    """
    known = load_deployments(config)
    setup_logging()
    what = f"the Prefect server at {PREFECT_API_URL.value() or 'a port of this process'}"
    outage = Outage(what, SystemClock(), get_logger("serve").warning)
    if wait:
        wait_for_server(outage)
    check_server()
    made = serving.served(known, config)
    while True:
        try:
            serving.install_automations()
            return serve_patiently(made, limit, outage)
        except Exception as error:
            if not went_away(error):
                raise
            outage.failed(error)
            outage.pause()
        wait_for_server(outage)


def deploy_all(
    config: pathlib.Path, pool_type: str = "process", image: str | None = None
) -> dict[str, str]:
    """Register every flow with a work pool for its kind of GPU; served name → pool.

    Workers, or the image that they start, need this same installation; code is not copied.
    Pools that exist keep their settings.

    Args:
        pool_type: of pools that are made: ``process`` or ``kubernetes``.
        image: what a Kubernetes worker starts; None leaves it to the pool's settings.

    Raises:
        DeploymentsError: the file cannot be used.
        RequestError: a pool of that name is of another type, or the server cannot be used.
    """
    known = load_deployments(config)
    check_server()
    made = serving.served(known, config)
    with get_client(sync_client=True) as client:
        for pool in sorted({pool_name(str(one.name)) for one in made}):
            _pool_made(client, pool, pool_type)
    serving.install_automations()
    pools: dict[str, str] = {}
    for one in made:
        one.work_pool_name = pool_name(str(one.name))
        if image is not None:
            one.job_variables = {**one.job_variables, "image": image}
        one.apply()
        pools[f"{one.flow_name}/{one.name}"] = one.work_pool_name
    return pools


def _pool_made(client: SyncPrefectClient, name: str, pool_type: str) -> None:
    with contextlib.suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=name, type=pool_type))
    found = client.read_work_pool(name).type
    if found != pool_type:
        expected = f"a work pool {name!r} of type {pool_type}"
        advice = "delete it, or give its type"
        raise RequestError("--pool-type", expected, found, advice)


def run_one(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Run one flow in this process.

    Raises:
        RequestError: there is no such flow, it takes no such parameter or value, the file has
            no such deployment, or the server cannot be used.
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
    # Before any server is asked: what is wrong is told in a line, not in a run that failed.
    every = load_deployments(pathlib.Path(parameters.get("config") or deployments_path()))
    missing = sorted(name for name in flow.parameters.required if name not in parameters)
    if missing:
        advice = f"add --param {missing[0]}=…"
        raise RequestError("--param", f"a value for {', '.join(missing)}", None, advice)
    _check_values(flow, parameters)
    if parameters.get("deployment") is not None:
        prepare.named(every, str(parameters["deployment"]), parameters.get("config"))
    check_server()
    return dict(flow(**parameters))


def _check_values(flow: Any, parameters: dict[str, Any]) -> None:
    try:
        flow.validate_parameters(parameters)
    except ParameterTypeError as error:
        words = " ".join(str(error).split())
        words = words.partition(": - ")[2] or words  # without Prefect's own introduction
        raise RequestError(
            "--param", f"values that {flow.name} takes", words, "correct it"
        ) from error
