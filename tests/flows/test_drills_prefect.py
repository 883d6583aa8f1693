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
    stage_line,
    sure,
)
from tests.flows.seen import FlowProcess
from tests.flows.world import FlowWorld

pytestmark = pytest.mark.stack

#: The client tries again for a minute otherwise, and reports to nobody.
IMPATIENT = {"PREFECT_CLIENT_MAX_RETRIES": "1"}


@pytest.mark.parametrize("stage", [s for s in STAGES if s != "beside"] if ALL else ["profile"])
def test_the_prefect_server_killed_at_a_stage(world: FlowWorld, stage: str) -> None:
    """It stays away until the run has ended, well or not."""
    sure(world)
    try:
        with FlowProcess(world.start("retune", environment=IMPATIENT)) as running:
            running.wait_for(*stage_line(stage))
            world.stack.kill("prefect")
            running.process.wait(180)
        # The host's lock, and not the server's slot, guards the device: it measured to the end
        # and promoted, although it could tell nobody.
        assert world.pointer() is not None, running.log()
        nothing_left(world)
    finally:
        back(world.stack, "prefect")
        free_slots()
    pointer, boots = world.pointer(), len(world.engine.boots())
    assert retune(world)["outcome"] == "Unchanged"
    assert world.pointer() == pointer
    assert len(world.engine.boots()) == boots
    reaped(world)


def test_wrong_credentials_are_told_in_a_line(world: FlowWorld) -> None:
    wrong = {"PREFECT_API_AUTH_STRING": "tabletune:wrong"}
    with FlowProcess(world.start("retune", environment=wrong)) as running:
        assert running.process.wait(120) == 2, running.log()
    assert "PREFECT_API_AUTH_STRING: expected the credentials" in running.log()
    assert "Traceback" not in running.log()
    assert world.engine.boots() == []
