"""A real `prefect worker` on a process pool: it runs a retune, and it is killed while one runs."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tabletune.measure.supervise import descendants
from tests.flows.drills import ALL, free_slots, nothing_left, reaped, sure, tracked_once
from tests.flows.seen import wait_until
from tests.flows.test_deploy_command import deploy, nothing_deployed
from tests.flows.test_drills_serve import lives, measured, quick_automations, state_of
from tests.flows.world import FlowWorld

pytestmark = pytest.mark.stack

POOL, RETUNE = "tabletune-cpu", "retune/cpu"


@pytest.fixture
def registered(world: FlowWorld) -> Iterator[FlowWorld]:
    """Every flow is registered for workers; margins let the stand-in's table pass."""
    sure(world)
    with nothing_deployed():
        deploy(world)
        yield world


def test_a_worker_picks_a_retune_up_and_promotes(registered: FlowWorld) -> None:
    with working(registered):
        asked = ask(registered)
        assert ended(asked) == "Promoted"
    pointer = registered.pointer()
    assert pointer is not None
    tracked_once(registered, pointer.table_version)
    reaped(registered)


@pytest.mark.drill
def test_a_worker_is_killed_with_its_run_and_then_without(registered: FlowWorld) -> None:
    world = registered
    with quick_automations():
        with working(world) as first:
            lost = ask(world)
            wait_until(lambda: measured(world, "acceptance_prior"), "it profiles")
            # With the engine's supervisor: what then lives is for the next run to end.
            engines = [world.engine.boots()[-1][name] for name in ("pid", "core_pid")]
            kill([first.pid, *(pid for pid in descendants(first.pid) if pid not in engines)])
        assert state_of(lost) == "Running", "nobody is left who could say otherwise"
        assert world.pointer() is None
        free_slots_unless_waiting()
        with working(world) as second:
            ask(world)
            wait_until(lambda: measured(world, "profile"), "the second run has the profile")
            assert not set(world.engine.living()) & set(engines), "of the first nothing is left"
            orphans = descendants(second.pid)
            kill([second.pid])
        # What the killed one started may go on to the end or be gone: it leaves nothing.
        wait_until(lambda: not any(map(lives, orphans)), "the run has ended")
        nothing_left(world)
        free_slots_unless_waiting()
        with working(world):
            assert ended(ask(world)) in ("Promoted", "Unchanged")
        pointer = world.pointer()
        assert pointer is not None
        assert [state.sequence for state in world.store.history("live")] == [1]
        tracked_once(world, pointer.table_version)
        reaped(world)
        wait_until(lambda: state_of(lost) == "Crashed", "the dead run is told to be dead")


def ask(world: FlowWorld) -> str:
    """A run of retune that waits for a worker; its id."""
    from prefect.deployments import run_deployment

    asked: Any = run_deployment(
        RETUNE, parameters={"deployment": world.name}, timeout=0, as_subflow=False
    )
    return str(asked.id)


def ended(run_id: str) -> str:
    """The name of the state that a run ended in."""
    from uuid import UUID

    from prefect.client.orchestration import get_client

    def final() -> str:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(run_id)).state
        return str(state.name) if state is not None and state.is_final() else ""

    return str(wait_until(final, "the run has ended"))


@contextlib.contextmanager
def working(world: FlowWorld) -> "Iterator[subprocess.Popen[bytes]]":
    """`prefect worker start` as docs/operations.md says; killed with what it started."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL]
    with (world.folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=world.folder,
            env={**os.environ, "PREFECT_WORKER_QUERY_SECONDS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill([process.pid, *descendants(process.pid)] if process.poll() is None else [])
        process.wait(30)


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def free_slots_unless_waiting() -> None:
    """A killed run's lease ends within a minute; the whole matrix waits for that."""
    if not ALL:
        free_slots()
