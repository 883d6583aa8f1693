"""SIGKILL of the Prefect server: a measurement goes on, and what it leads to is not lost."""

import pytest

from tests.flows.drills import (
    ALL,
    STAGES,
    back,
    free_slots,
    nothing_left,
    reaped,
    retune,
    revived,
    stage_line,
    sure,
    tracked_once,
)
from tests.flows.seen import FlowProcess, wait_until
from tests.flows.world import FlowWorld

pytestmark = pytest.mark.stack

#: The client tries again for a minute otherwise, and reports to nobody.
IMPATIENT = {"PREFECT_CLIENT_MAX_RETRIES": "1", "PYTHONFAULTHANDLER": "1"}


@pytest.mark.drill
@pytest.mark.parametrize("stage", [s for s in STAGES if s != "beside"] if ALL else ["profile"])
def test_the_prefect_server_killed_at_a_stage(world: FlowWorld, stage: str) -> None:
    """It stays away until the run has promoted, and is told the rest once it is back."""
    world.name = f"prefect-killed-at-{stage}"
    sure(world)
    with (
        revived(world.stack),
        FlowProcess(world.start("retune", environment=IMPATIENT)) as running,
    ):
        running.wait_for(*stage_line(stage))
        world.stack.kill("prefect")
        # The host's lock, and not the server's slot, guards the device: it goes on to the end,
        # although there is nobody to tell.
        wait_until(world.pointer, f"it has promoted:\n{running.log()}")
        nothing_left(world)
        back(world.stack, "prefect")
        running.wait()
    free_slots()
    pointer, boots = world.pointer(), len(world.engine.boots())
    assert pointer is not None
    assert retune(world)["outcome"] == "Unchanged"
    assert world.pointer() == pointer
    assert len(world.engine.boots()) == boots
    tracked_once(world, pointer.table_version)
    reaped(world)


def test_wrong_credentials_are_told_in_a_line(world: FlowWorld) -> None:
    wrong = {"PREFECT_API_AUTH_STRING": "tabletune:wrong"}
    with FlowProcess(world.start("retune", environment=wrong)) as running:
        assert running.process.wait(120) == 2, running.log()
    assert "PREFECT_API_AUTH_STRING: expected the credentials" in running.log()
    assert "Traceback" not in running.log()
    assert world.engine.boots() == []
