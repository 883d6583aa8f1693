"""SeaweedFS is killed at each stage, is slow, full, forbids, or ignores conditions."""

import os
from collections.abc import Callable

import pytest

from tabletune.store.errors import (
    ConditionsIgnored,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreUnwritable,
)
from tests.faulty_server import FaultyServer
from tests.flows.drills import (
    AtStages,
    back,
    nothing_left,
    outbox,
    reaped,
    records_of,
    retune,
    revived,
    sure,
    tracked_once,
)
from tests.flows.test_drills_flow import through_proxy
from tests.flows.world import FlowWorld
from tests.s3_proxy import Fault

pytestmark = pytest.mark.stack


@pytest.mark.drill
def test_s3_killed_at_any_stage_loses_nothing(world: FlowWorld) -> None:
    sure(world)
    stack = world.stack

    def kill() -> None:
        stack.kill("s3")

    # Away for a stage: nobody needs it. Away to the end: what was measured is kept here.
    away: dict[str, Callable[[], object]] = {
        "qualify": kill,
        "acceptance": lambda: back(stack, "s3"),
        "profile": kill,
    }
    fails_with(world, away)
    measured = records_of(world)
    assert {"qualification.json", "acceptance_prior.json", "profile.json"} <= set(measured)
    fails_with(world, {"validate": kill})
    boots = len(world.engine.boots())
    fails_with(world, {"gate": kill})
    # After the move only MLflow is to be told, which keeps its files there, too.
    with revived(stack), AtStages({"promote": kill}):
        result = retune(world)
    assert result["outcome"] == "Promoted", result
    assert len(world.engine.boots()) == boots, "the verdict was kept, too"
    assert {name: records_of(world)[name] for name in measured} == measured
    pointer = world.pointer()
    assert pointer is not None
    assert pointer.table_version == result["version"]
    assert retune(world)["outcome"] == "Unchanged"
    assert world.pointer() == pointer
    tracked_once(world, pointer.table_version)
    reaped(world)


def fails_with(world: FlowWorld, actions: dict[str, Callable[[], object]]) -> None:
    with revived(world.stack), AtStages(actions), pytest.raises(StoreUnreachable):
        retune(world)
    assert world.pointer() is None
    nothing_left(world)


def test_a_store_that_refuses_is_told_before_anything_is_measured(world: FlowWorld) -> None:
    with through_proxy(world) as proxy:
        refusals: list[tuple[int, str, type[StoreError]]] = [
            (403, "AccessDenied", StoreUnwritable),
            (507, "XMinioStorageFull", StoreFull),
        ]
        for status, code, kind in refusals:
            proxy.faults[:] = [Fault(method="PUT", status=status, code=code)]
            with pytest.raises(kind, match=code):
                retune(world)
        os.environ["AWS_SECRET_ACCESS_KEY"], right = "wrong", os.environ["AWS_SECRET_ACCESS_KEY"]
        try:
            proxy.faults.clear()
            with pytest.raises(StoreUnwritable, match="check the credentials"):
                retune(world)
        finally:
            os.environ["AWS_SECRET_ACCESS_KEY"] = right
        with FaultyServer().start() as faulty:
            faulty.faults.ignore_conditions = True
            world.configure(store=f"s3://bucket/{world.name}?endpoint={faulty.address}")
            with pytest.raises(ConditionsIgnored, match="use another S3 server"):
                retune(world)
    assert world.engine.boots() == []


def test_a_store_that_fills_up_and_is_slow_and_a_tracker_that_lets_nobody_in(
    world: FlowWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sure(world)
    with through_proxy(world) as proxy:
        proxy.faults[:] = [
            Fault(method="PUT", path="objects/", status=507, code="XMinioStorageFull"),
            Fault(delay_s=0.03),
        ]
        with pytest.raises(StoreFull):
            retune(world)
        measured = records_of(world)
        assert any(name.startswith("verdict-") for name in measured)
        assert world.pointer() is None
        nothing_left(world)
        boots = len(world.engine.boots())
        del proxy.faults[0]  # somebody made room; slow it stays
        with monkeypatch.context() as wrong:
            wrong.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
            result = retune(world)
        assert result["outcome"] == "Promoted", result
        assert len(world.engine.boots()) == boots
        assert records_of(world) == measured
        assert len(outbox(world)) == 1
        assert "check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" in caplog.text
        assert retune(world)["outcome"] == "Unchanged"
    tracked_once(world, result["version"])
    reaped(world)
