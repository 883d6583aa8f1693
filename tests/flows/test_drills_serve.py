"""The serving process is killed, with its run and without; runs that nobody ends, or takes, end."""

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tabletune.maintain.deployments import Deployment, load_deployments
from tabletune.maintain.watch import Change, WatchResult
from tabletune.measure.supervise import parents
from tests.flows.drills import ALL, free_slots, nothing_left, reaped, retune, sure, tracked_once
from tests.flows.seen import wait_until
from tests.flows.test_serve_command import is_served, serving
from tests.flows.world import FlowWorld

pytestmark = pytest.mark.stack

#: The automations' patience here, in seconds. Signs of life come every 30 s at most.
SILENT_S, LATE_S = 40.0, 10.0


@pytest.mark.drill
def test_serve_is_killed_with_its_run_and_then_without(world: FlowWorld) -> None:
    sure(world)
    (deployment,) = load_deployments(world.config)
    with quick_automations():
        late = late_run(world)
        with being_served(world) as first:
            started = asked_twice(world, deployment, "first")
            wait_until(lambda: measured(world, "acceptance_prior"), "it profiles")
            kill(first, *children(first))
        assert state_of(started) == "Running", "nobody is left who could say otherwise"
        assert world.pointer() is None
        nothing_left(world)
        if not ALL:  # its lease runs out within a minute
            free_slots()
        with being_served(world) as second:
            asked_twice(world, deployment, "second")
            wait_until(lambda: measured(world, "profile"), "the second run has the profile")
            orphans = children(second)
            kill(second)
        # What the killed one started may go on to the end or be gone: it leaves nothing.
        wait_until(lambda: not any(map(lives, orphans)), "the run has ended")
        nothing_left(world)
        free_slots()
        outcome = retune(world)["outcome"]
        pointer = world.pointer()
        assert pointer is not None, outcome
        assert [state.sequence for state in world.store.history("live")] == [1]
        tracked_once(world, pointer.table_version)
        reaped(world)
        wait_until(lambda: state_of(late).startswith("Cancel"), "the late run is cancelled")
        wait_until(lambda: state_of(started) == "Crashed", "the dead run is told to be dead")


def asked_twice(world: FlowWorld, deployment: Deployment, finding: str) -> Any:
    """The same finding twice, as by a schedule that fires twice: one run."""
    from tabletune_tasks import start_runs

    start_retune: Any = start_runs.start_retune
    change = Change("first", "there is no table in force")
    found = WatchResult(world.name, (change,), fingerprint=finding)
    day, config = datetime.now(UTC).date().isoformat(), str(world.config)
    asked: list[str] = [start_retune.fn(deployment, found, config, day) for _ in range(2)]
    assert len(set(asked)) == 1, "the second is the first"
    return asked[0]


@contextlib.contextmanager
def being_served(world: FlowWorld) -> "Iterator[subprocess.Popen[bytes]]":
    with serving(world) as process:
        wait_until(lambda: is_served(process, "retune/cpu"), "retune is served")
        try:
            yield process
        finally:
            kill(process)


def kill(process: "subprocess.Popen[bytes]", *others: int) -> None:
    for pid in (process.pid, *others):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(30)


def children(process: "subprocess.Popen[bytes]") -> list[int]:
    """The processes of its runs; engines are further down."""
    return [pid for pid, parent in parents().items() if parent == process.pid]


def lives(pid: int) -> bool:
    return pid in parents()


def measured(world: FlowWorld, kind: str) -> list[pathlib.Path]:
    return list(world.out.glob(f"records/*/{kind}.json"))


@contextlib.contextmanager
def quick_automations() -> Iterator[None]:
    """Ours once more, with less patience."""
    from prefect.client.orchestration import get_client

    from tabletune_flows.serving import automations

    with get_client(sync_client=True) as client:
        made = []
        for one, within_s in zip(automations(), (SILENT_S, LATE_S), strict=True):
            trigger = one.trigger.model_copy(update={"within": timedelta(seconds=within_s)})
            changed = one.model_copy(update={"name": f"drill: {one.name}", "trigger": trigger})
            made.append(client.create_automation(changed))
        try:
            yield
        finally:
            for identity in made:
                client.delete_automation(identity)


def late_run(world: FlowWorld) -> str:
    """A run that should have begun a minute ago, of a flow that nobody serves."""
    from prefect.client.orchestration import get_client
    from prefect.states import Scheduled

    from tabletune_flows.serving import TAG
    from tabletune_flows.watch import watch

    flow: Any = watch
    made = flow.to_deployment("nobody", parameters={"config": str(world.config)}, tags=[TAG])
    then = datetime.now(UTC) - timedelta(minutes=1)
    with get_client(sync_client=True) as client:
        state = Scheduled(scheduled_time=then)
        return str(client.create_flow_run_from_deployment(made.apply(), state=state).id)


def state_of(run_id: str) -> str:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        state = client.read_flow_run(UUID(run_id)).state
    return "" if state is None else str(state.name)
