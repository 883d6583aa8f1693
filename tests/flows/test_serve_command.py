"""`tabletune flows serve`: events start runs, and what watches over runs is installed."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.snapshot import LiveSnapshot
from tabletune.records.table import TableVersion
from tabletune.store.layout import live_key
from tabletune.store.s3_objects import S3Objects
from tabletune.store.s3_url import parse_s3_url
from tests.flows.seen import wait_until
from tests.flows.test_flow_approval import run_in_state
from tests.flows.world import FlowWorld
from tests.maintain.live import END_S, snapshot

pytestmark = pytest.mark.stack


def test_events_start_runs_of_served_flows(world: FlowWorld) -> None:
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
        a_changed_engine_starts_a_watch(watch.id)
        drifted_traffic_is_harvested_and_tuned_for(world)
        os.killpg(served.pid, signal.SIGINT)
        served.wait(60)
    assert world.engine.living() == []


def a_changed_engine_starts_a_watch(watch: Any) -> None:
    """By the command that docs/operations.md names, as a fleet's own deployment job would."""
    command = [sys.executable, "-m", "prefect", "event", "emit", "tabletune.engine.changed"]
    subprocess.run([*command, "--resource-id", "tabletune.engine.host-7"], check=True)

    def looked() -> bool:
        states = [run.state.name for run in runs(deployment_id=watch) if run.state]
        return "Looked" in states

    wait_until(looked, "a watch has looked")


def drifted_traffic_is_harvested_and_tuned_for(world: FlowWorld) -> None:
    """Engines accept hardly anything: harvest tells it, and the next table is made for that."""
    from prefect.deployments import run_deployment

    for number in range(4):
        tell(world, f"engine-{number}", accepted=(300 + number, 30))
    before = world.pointer()
    asked = {"deployment": world.name}
    run: Any = run_deployment("harvest/any", parameters=asked, timeout=170, as_subflow=False)
    assert run.state is not None
    assert run.state.name == "Harvested", run.state

    def tuned_again() -> bool:
        found = runs(name=f"retune-{world.name}")
        return len(found) == 2 and all(one.state and one.state.is_final() for one in found)

    wait_until(tuned_again, "the event of drift has started a retune, and it has ended")
    (prior,) = [name for name in world.store.list(AcceptancePrior) if is_live(world, name)]
    versions = [world.store.get(TableVersion, name) for name in world.store.list(TableVersion)]
    (made,) = [one for one in versions if one.parents.acceptance_prior == prior]
    assert set(made.table.dense()[1:]) == {0}, "guesses that are never right are not worth making"
    assert before is not None
    assert made.content_hash != before.table_version


def is_live(world: FlowWorld, name: str) -> bool:
    return world.store.get(AcceptancePrior, name).from_live_traffic


def tell(world: FlowWorld, run_id: str, accepted: tuple[int, int]) -> LiveSnapshot:
    """What an engine would write beside its store, as of now."""
    pointer = world.pointer()
    assert pointer is not None
    told = snapshot(
        run_id,
        version=pointer.table_version,
        fingerprint=pointer.fingerprint,
        drafted=(5000, 5000),
        accepted=accepted,
        age_s=END_S - time.time() + 5,
    )
    objects = S3Objects(parse_s3_url(world.store_url))
    objects.put(live_key("live", run_id), told.to_json())
    return told


def runs(name: str = "", deployment_id: Any = None) -> list[Any]:
    """The server's flow runs of that name, or of that deployment."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterDeploymentId,
        FlowRunFilterName,
    )

    wanted = FlowRunFilter(
        name=FlowRunFilterName(any_=[name]) if name else None,
        deployment_id=FlowRunFilterDeploymentId(any_=[deployment_id]) if deployment_id else None,
    )
    with get_client(sync_client=True) as client:
        return list(client.read_flow_runs(flow_run_filter=wanted))


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
