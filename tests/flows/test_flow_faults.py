"""Parts of the stack die: nothing is lost, the pointer is the old one or the new one."""

import os
import signal
import time

import pytest

from tests.flows.seen import FlowProcess, wait_until
from tests.flows.test_retune_flow import mlflow_client, retune
from tests.flows.world import FlowWorld

pytestmark = pytest.mark.stack


def test_a_killed_flow_leaves_the_old_pointer_or_the_new_one(world: FlowWorld) -> None:
    """SIGKILL at each stage; the next run takes up what was measured and ends it."""
    for stage in ("qualify", "profile", "validate"):
        killed_at(world, stage)
        assert world.pointer() is None, stage
    killed_at(world, "promote")
    before = world.pointer()
    with FlowProcess(world.start("retune")) as last:
        result = last.result()
    assert result["outcome"] == ("Unchanged" if before else "Promoted"), result
    pointer = world.pointer()
    assert pointer is not None
    assert before in (None, pointer)
    assert [state.sequence for state in world.store.history("live")] == [1]
    assert world.engine.living() == []


def killed_at(world: FlowWorld, stage: str) -> None:
    with FlowProcess(world.start("retune")) as running:
        # Progress of the stage, or its end where nothing had to be measured.
        running.wait_for(f"Task run '{stage}-")
        os.kill(running.process.pid, signal.SIGKILL)
    wait_until(lambda: not world.engine.living(), "engines are gone")
    free_slots()


def free_slots() -> None:
    """What an operator does who does not want to wait until the lease of a minute is over."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate

    with get_client(sync_client=True) as client:
        for limit in client.read_global_concurrency_limits():
            if limit.active_slots:
                none = GlobalConcurrencyLimitUpdate(active_slots=0)
                client.update_global_concurrency_limit(limit.name, none)


def test_mlflow_down_holds_up_no_promotion(world: FlowWorld) -> None:
    world.stack.kill("mlflow")
    try:
        begun_s = time.monotonic()
        result = retune(world)
        took_s = time.monotonic() - begun_s
        waiting = list((world.out / "outbox").glob("*.json"))
    finally:
        world.stack.launch("mlflow")
        world.stack.wait_until_up("mlflow")
    assert result["outcome"] == "Promoted"
    assert world.pointer() is not None
    assert took_s < 150
    assert len(waiting) == 1
    again = retune(world)
    assert again["outcome"] == "Unchanged"
    assert list((world.out / "outbox").iterdir()) == []
    client = mlflow_client()
    champion = client.get_model_version_by_alias(f"tabletune.{world.name}", "champion")
    assert champion.tags["table_version"] == result["version"]
    report = {a.path for a in client.list_artifacts(champion.run_id, "report")}
    assert "report/report.html" in report


def test_two_retunes_at_once_move_the_pointer_once(world: FlowWorld) -> None:
    with (
        FlowProcess(world.start("retune")) as first,
        FlowProcess(world.start("retune")) as second,
    ):
        outcomes = sorted((first.result()["outcome"], second.result()["outcome"]))
    assert outcomes == ["Promoted", "Unchanged"]
    assert [state.sequence for state in world.store.history("live")] == [1]
    assert world.engine.living() == []
