"""flows: serve, deploy and run the maintenance flows. Needs the extra `flows`."""

import importlib
import json
import os
import pathlib
from typing import Annotated, Any

import typer

from tabletune.commands.console import print_json
from tabletune.commands.options import Json
from tabletune.pipeline.request import RequestError

app = typer.Typer(
    name="flows",
    help="Keep tables right unattended: Prefect flows that measure, compare and promote.",
    no_args_is_help=True,
)

Config = Annotated[
    pathlib.Path,
    typer.Option(
        "--config",
        envvar="TABLETUNE_DEPLOYMENTS",
        help="The deployments file.",
    ),
]
#: Set before Prefect is imported, unless the environment says otherwise. Without a server in
#: PREFECT_API_URL it starts one for the run, whose first start makes a database.
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
        "prefect.server.concurrency.lease_storage.filesystem"
    ),
}
POOL_TYPES = ("process", "kubernetes")
DEFAULT_CONFIG = pathlib.Path("deployments.yaml")


class FlowsMissing(RequestError):
    """Prefect is not installed here."""

    def __init__(self, missing: str) -> None:
        super().__init__(
            "flows", "Prefect in this environment", missing, "pip install 'tabletune[flows]'"
        )


@app.command()
def serve(
    config: Config = DEFAULT_CONFIG,
    limit: Annotated[int, typer.Option(help="Runs at the same time.")] = 4,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="For a Prefect server that does not answer at the start, too."),
    ] = False,
) -> None:
    """Serve all flows from this process until it is interrupted, on their schedules and events.

    It goes on through every outage of the Prefect server.
    """
    _running().serve_all(config, limit, wait)


@app.command()
def deploy(
    config: Config = DEFAULT_CONFIG,
    pool_type: Annotated[
        str, typer.Option(help="Type of work pools that are made: process or kubernetes.")
    ] = "process",
    image: Annotated[
        str | None, typer.Option(help="What Kubernetes workers start, with this installation.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Register all flows for workers: one work pool for each kind of GPU, and `any`."""
    if pool_type not in POOL_TYPES:
        raise RequestError(
            "--pool-type", f"one of {', '.join(POOL_TYPES)}", pool_type, "choose one"
        )
    if image is not None and pool_type == "process":
        found, advice = f"{image} with --pool-type process", "leave it out"
        raise RequestError("--image", "an image for Kubernetes workers", found, advice)
    made = _running().deploy_all(config, pool_type, image)
    if as_json:
        print_json({"deployments": made})
        return
    for name, pool in made.items():
        print(f"{name}  work pool {pool}")
    for pool in sorted(set(made.values())):
        print(f"start a worker there: prefect worker start --pool {pool}")


@app.command("run")
def run_flow(
    name: Annotated[str, typer.Argument(help="watch, retune, upgrade, revalidate, …")],
    parameter: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", help="NAME=VALUE; VALUE is JSON or plain text; repeat it."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Run one flow here and now, and print how it ended."""
    given = dict(_parameter(text) for text in parameter or ())
    result = _running().run_one(name, {"config": config.absolute()} | given)
    if as_json:
        print_json(result)
        return
    print(f"{result['outcome']}: {result['message']}")
    for reason in result.get("reasons", ()):
        print(f"  {reason}")


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise RequestError("--param", "NAME=VALUE", text, "such as --param deployment=chat-8b")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _running() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("tabletune_flows.running")
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("prefect", "tabletune_flows"):
            raise FlowsMissing(str(error)) from error
        raise
