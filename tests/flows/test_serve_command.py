"""`tabletune flows serve`: events start runs, and what watches over runs is installed."""

import os
import signal
import subprocess
import sys

import pytest

from tests.flows.seen import wait_until
from tests.flows.test_flow_approval import run_in_state
from tests.flows.world import FlowWorld

pytestmark = pytest.mark.stack


def test_an_event_starts_a_retune_of_a_served_flow(world: FlowWorld) -> None:
    from prefect.client.orchestration import get_client

    from tabletune.maintain.deployments import load_deployments
    from tabletune_tasks.promotion import tell_drift

    (deployment,) = load_deployments(world.config)
    with serving(world) as served, get_client(sync_client=True) as client:
        wait_until(lambda: is_served(served, "retune/cpu"), "retune is served")
        automations = {one.name for one in client.read_automations()}
        assert {
            "tabletune: runs whose process is gone",
            "tabletune: runs that are too late",
        } <= automations
        watch = client.read_deployment_by_name("watch/any")
        assert [one.schedule.cron for one in watch.schedules] == ["0 3 * * *"]
        tell_drift.fn(deployment, "live traffic is not what it was")
        wait_until(lambda: run_in_state(world, "Promoted"), "the run has promoted")
        os.killpg(served.pid, signal.SIGINT)
        served.wait(60)
    assert world.pointer() is not None
    assert world.engine.living() == []


def serving(world: FlowWorld) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tabletune.cli", "flows", "serve", "--config"]
    return subprocess.Popen([*command, str(world.config)], cwd=world.folder, start_new_session=True)


def is_served(process: "subprocess.Popen[bytes]", name: str) -> bool:
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    assert process.poll() is None, "serve ended"
    with get_client(sync_client=True) as client:
        try:
            found = client.read_deployment_by_name(name)
        except ObjectNotFound:
            return False
    return str(found.status).endswith("READY") and not str(found.status).endswith("NOT_READY")
