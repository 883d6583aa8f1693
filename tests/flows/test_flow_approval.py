"""A gate that asks: the run waits, an answer through the API resumes it."""

from typing import Any

import pytest

from tests.flows.seen import FlowProcess, wait_until
from tests.flows.world import FlowWorld

pytestmark = pytest.mark.stack


def test_an_approval_through_the_api_promotes(world: FlowWorld) -> None:
    from prefect.client.orchestration import get_client

    world.configure(gate={"approval": "always"})
    with FlowProcess(world.start("retune", "answer_s=170")) as running:
        running.wait_for("gate-")
        paused = wait_until(lambda: run_in_state(world, "Paused"), "the run waits")
        assert world.pointer() is None
        assert world.engine.living() == []
        with get_client(sync_client=True) as client:
            wrong = {"approve": {"not": "a boolean"}, "who": "ann", "reason": ""}
            refused = client.resume_flow_run(paused.id, run_input=wrong)
            assert str(refused.status) == "SetStateStatus.REJECT"
            right = {"approve": True, "who": "ann", "reason": "looked at the report"}
            client.resume_flow_run(paused.id, run_input=right)
        result = running.result()
    assert result["outcome"] == "Promoted", result
    pointer = world.pointer()
    assert pointer is not None
    assert pointer.table_version == result["version"]
    decision = stored_decision(world, result["decision"])
    assert (decision.outcome, decision.decided_by) == ("approve", "ann")
    assert decision.reasons[0] == "approved by ann: looked at the report"
    asked = stored_decision(world, decision.answers)
    assert asked.outcome == "ask"


def run_in_state(world: FlowWorld, state: str) -> Any:
    """The world's run of retune that is in that state, None without one."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName

    with get_client(sync_client=True) as client:
        wanted = FlowRunFilter(name=FlowRunFilterName(any_=[f"retune-{world.name}"]))
        found = client.read_flow_runs(flow_run_filter=wanted)
    return next((run for run in found if run.state and run.state.name == state), None)


def stored_decision(world: FlowWorld, name: str) -> Any:
    from tabletune.records.decision_record import PromotionDecision

    return world.store.get(PromotionDecision, name)
