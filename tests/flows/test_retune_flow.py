"""retune on the real stack: Prefect, MLflow and S3, and a stand-in engine."""

import os
import pathlib
from typing import Any

import pytest

from tests.flows.world import FlowWorld

pytestmark = pytest.mark.stack


def retune(world: FlowWorld, **parameters: Any) -> dict[str, Any]:
    from tabletune_flows.retune import retune as flow

    return flow(world.name, config=world.config, **parameters)


def mlflow_client() -> Any:
    from mlflow import MlflowClient

    return MlflowClient(os.environ["MLFLOW_TRACKING_URI"])


def test_a_first_retune_promotes_and_a_second_does_nothing(world: FlowWorld) -> None:
    first = retune(world)
    assert first["outcome"] == "Promoted", first
    pointer = world.pointer()
    assert pointer is not None
    assert pointer.table_version == first["version"]
    assert pointer.moved_by == f"flow retune-{world.name}"
    check_mlflow(world, first["version"])
    check_artifacts(world)
    boots = len(world.engine.boots())
    second = retune(world)
    assert second["outcome"] == "Unchanged"
    assert len(world.engine.boots()) == boots
    assert world.engine.living() == []
    assert world.pointer() == pointer
    revalidation_confirms_it(world)
    slow_table_is_refused(world)


def revalidation_confirms_it(world: FlowWorld) -> None:
    """Everything is measured again, nothing is promoted, and the table counts as young again."""
    from tabletune.maintain.confirmed import read_confirmed
    from tabletune_flows.running import run_one

    before, boots = world.pointer(), len(world.engine.boots())
    world.configure(gate={"least_gain": 0.5})  # what noise seems to gain is not worth a change
    again = run_one("revalidate", {"deployment": world.name, "config": world.config})
    assert again["outcome"] == "Confirmed", again
    assert again["reasons"]
    assert len(world.engine.boots()) > boots
    assert world.pointer() == before
    confirmed = read_confirmed(world.out)
    assert before is not None
    assert confirmed is not None
    assert confirmed.table_version == before.table_version
    world.configure(gate={})


def check_mlflow(world: FlowWorld, version: str) -> None:
    """A parent run with a child for each stage; the version in the registry, named by alias."""
    client = mlflow_client()
    experiment = client.get_experiment_by_name(f"tabletune.{world.name}")
    runs = client.search_runs([experiment.experiment_id])
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert [run.info.status for run in runs] == ["FINISHED"] * 4
    children = {
        run.info.run_name
        for run in runs
        if run.data.tags.get("mlflow.parentRunId") == parents[0].info.run_id
    }
    assert children == {"qualify", "profile", "validate"}
    ranges = {k: v for k, v in parents[0].data.params.items() if k.startswith("range_")}
    table = world.store.get(table_version_kind(), version).table
    assert ranges == {f"range_{r.first}_{r.last}": str(r.draft_length) for r in table.ranges}
    history = client.get_metric_history(parents[0].info.run_id, "predicted_tok_s/table")
    assert [point.step for point in history] == [1, 2, 3, 4]
    champion = client.get_model_version_by_alias(f"tabletune.{world.name}", "champion")
    assert champion.tags["table_version"] == version
    assert champion.tags["schema"] == "table_version/1"
    artifacts = {a.path for a in client.list_artifacts(parents[0].info.run_id, "table")}
    assert artifacts == {"table/table.json", "table/vllm.json"}
    listed = client.list_artifacts(parents[0].info.run_id, "report")
    assert "report/report.html" in {a.path for a in listed}


def table_version_kind() -> Any:
    from tabletune.records.table import TableVersion

    return TableVersion


def check_artifacts(world: FlowWorld) -> None:
    """The run's page has a summary, the verdict as a table, and links."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    with get_client(sync_client=True) as client:
        key = ArtifactFilterKey(like_=f"{world.name}-%")
        found = client.read_artifacts(artifact_filter=ArtifactFilter(key=key))
    by_key = {artifact.key.removeprefix(f"{world.name}-"): artifact for artifact in found}
    assert {"summary", "verdict", "mlflow", "report"} <= set(by_key)
    assert "## Validation passed" in by_key["summary"].data
    assert "no speculation" in by_key["summary"].data


def slow_table_is_refused(world: FlowWorld) -> None:
    before = world.pointer()
    os.environ["FAKE_ENGINE_SLOW_TABLE"] = "3.0"
    try:
        result = retune(world, fresh=True)
    finally:
        del os.environ["FAKE_ENGINE_SLOW_TABLE"]
    assert result["outcome"] == "Refused", result
    assert any(reason.startswith("the verdict failed: ") for reason in result["reasons"])
    assert result["message"] == f"{world.name}: not promoted"
    assert world.pointer() == before
    assert world.engine.living() == []


def test_an_unknown_deployment_is_named(world: FlowWorld) -> None:
    from tabletune_flows.retune import retune as flow

    with pytest.raises(ValueError, match="found 'nobody'"):
        flow("nobody", config=pathlib.Path(world.config))
