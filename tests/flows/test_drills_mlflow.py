"""MLflow is killed: no promotion waits for it, and nothing is lost."""

import time

import pytest

from tests.flows.drills import AtStages, back, outbox, reaped, retune, revived, sure, tracked_once
from tests.flows.world import FlowWorld
from tests.s3_proxy import Fault, S3Proxy

pytestmark = pytest.mark.stack


@pytest.mark.drill
def test_mlflow_killed_at_any_stage_holds_up_no_promotion(
    world: FlowWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Away while the run measures, back in between, and killed again in the middle of a file."""
    sure(world)
    stack = world.stack
    with revived(stack), S3Proxy(stack.urls["mlflow"]) as proxy:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", proxy.address)
        middle = Fault(method="PUT", path="report.html", times=1)
        middle.before = lambda: stack.kill("mlflow")
        proxy.faults.append(middle)
        begun_s = time.monotonic()
        with AtStages(
            {"qualify": lambda: stack.kill("mlflow"), "profile": lambda: back(stack, "mlflow")}
        ):
            result = retune(world)
        took_s = time.monotonic() - begun_s
        assert middle.met == 1
        assert result["outcome"] == "Promoted", result
        assert world.pointer() is not None
        assert took_s < 200
        assert len(outbox(world)) == 1
        back(stack, "mlflow")
        assert retune(world)["outcome"] == "Unchanged"
        tracked_once(world, result["version"])
    reaped(world)
