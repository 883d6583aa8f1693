"""SIGKILL of the flow's process at each stage: the next run takes up what was measured."""

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests.flows.drills import (
    free_slots,
    nothing_left,
    reaped,
    records_of,
    retune,
    stage_line,
    sure,
    tracked_once,
)
from tests.flows.seen import FlowProcess
from tests.flows.world import FlowWorld
from tests.s3_proxy import Fault, S3Proxy

pytestmark = pytest.mark.stack

POINTER = "channels/live/pointer.json"
#: Records that a run killed at a stage has finished before.
BEFORE = {
    "qualify": (),
    "acceptance": ("qualification.json",),
    "profile": ("qualification.json", "acceptance_prior.json"),
    "validate": ("qualification.json", "acceptance_prior.json", "profile.json"),
}


@contextlib.contextmanager
def through_proxy(world: FlowWorld) -> Iterator[S3Proxy]:
    """The world's store, reached through a proxy that says when to die."""
    with S3Proxy(world.stack.urls["s3"]) as proxy:
        url = world.store_url.replace(world.stack.urls["s3"], proxy.address)
        world.configure(store=url)
        yield proxy
    world.configure(store=world.store_url)


@pytest.mark.drill
def test_a_killed_flow_leaves_the_old_pointer_or_the_new_one(world: FlowWorld) -> None:
    sure(world)
    with through_proxy(world) as proxy:
        kept: dict[str, bytes] = {}
        for stage, finished in BEFORE.items():
            killed_at_stage(world, stage)
            assert world.pointer() is None, stage
            nothing_left(world)
            now = records_of(world)
            assert set(finished) <= set(now), stage
            assert {name: now[name] for name in kept} == kept, "what was finished stays"
            kept = {name: now[name] for name in finished}
        for path in ("objects/promotion_decision", POINTER):
            killed_at_write(world, proxy, path)
            assert world.pointer() is None
            nothing_left(world)
        boots = len(world.engine.boots())
        killed_at_write(world, proxy, POINTER, done=True)
        pointer = world.pointer()
        assert pointer is not None, "the write was done"
        last = retune(world)
    assert len(world.engine.boots()) == boots, "from the verdict on nothing is measured again"
    assert last["outcome"] == "Unchanged", last
    assert world.pointer() == pointer
    assert [state.sequence for state in world.store.history("live")] == [1]
    tracked_once(world, pointer.table_version)
    reaped(world)


def killed_at_stage(world: FlowWorld, stage: str) -> None:
    with FlowProcess(world.start("retune")) as running:
        running.wait_for(*stage_line(stage))
        os.kill(running.process.pid, signal.SIGKILL)
    free_slots()


def killed_at_write(world: FlowWorld, proxy: S3Proxy, path: str, done: bool = False) -> None:
    """Killed just before a write, or when it is `done` and the answer on its way."""
    with FlowProcess(world.start("retune")) as running:

        def kill() -> None:
            running.process.kill()
            running.process.wait(30)

        if done:
            fault = Fault("PUT", path, times=1, after=kill)
        else:
            # Answered here: nobody does what the dead process asked for.
            fault = Fault("PUT", path, status=503, code="SlowDown", times=1, before=kill)
        proxy.faults.append(fault)
        running.process.wait(180)
    assert running.process.returncode == -signal.SIGKILL, running.log()
    free_slots()


def test_two_retunes_at_once_move_the_pointer_once(world: FlowWorld) -> None:
    """A schedule that fires twice: the second waits for the device, and finds nothing to do."""
    sure(world)
    with (
        FlowProcess(world.start("retune")) as first,
        FlowProcess(world.start("retune")) as second,
    ):
        outcomes = sorted((first.result()["outcome"], second.result()["outcome"]))
    assert outcomes == ["Promoted", "Unchanged"]
    assert [state.sequence for state in world.store.history("live")] == [1]
    reaped(world)
