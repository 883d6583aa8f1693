"""What drills share: something dies as a stage begins, and what must hold afterwards."""

import contextlib
import logging
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infra.local_stack import LocalStack
from tabletune.maintain.gpu_lock import gpu_lock
from tabletune.maintain.reaper import marker_folder, markers
from tabletune.pipeline.workspace import Workspace
from tabletune.records.decision_record import PromotionDecision
from tabletune.store.check import problems
from tests.flows.seen import wait_until
from tests.flows.world import FlowWorld
from tests.s3_server import client_of, wait_until_ready

#: For each stage the task that it is, and the line of its log that says that it works: with an
#: engine up, or for the last two, done.
STAGES: dict[str, tuple[str, str]] = {
    "qualify": ("qualify", "qualify"),
    "acceptance": ("count acceptance", "acceptance"),
    "profile": ("profile", "profile"),
    "validate": ("validate", "validate"),
    "beside": ("validate", "validate beside the stock engine and the one without speculation"),
    "gate": ("gate", "Finished in state Completed()"),
    "promote": ("promote", "Finished in state Completed()"),
}
#: All of the matrix instead of a part of it.
ALL = os.environ.get("TT_DRILLS") == "all"


class AtStages(logging.Handler):
    """Calls an action, once, as a stage of a flow in this process says its line.

    The flow waits meanwhile: what dies, dies before its next step.
    """

    def __init__(self, actions: Mapping[str, Callable[[], object]]) -> None:
        super().__init__(logging.INFO)
        self._left = {STAGES[stage]: (stage, action) for stage, action in actions.items()}
        self.done: list[str] = []
        self.failed: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        task = str(getattr(record, "task_run_name", "")).rpartition("-")[0]
        stage, action = self._left.pop((task, record.getMessage()), ("", None))
        if action is not None:
            self.done.append(stage)
            try:
                action()
            except BaseException as error:
                self.failed.append(error)

    def __enter__(self) -> "AtStages":
        from prefect.logging.configuration import setup_logging

        setup_logging()  # the first flow of a process does, and would take this handler away
        logging.getLogger("prefect.task_runs").addHandler(self)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        logging.getLogger("prefect.task_runs").removeHandler(self)
        assert not self.failed, self.failed
        if kind is None:
            assert self._left == {}, f"never came: {self._left}"


def stage_line(stage: str) -> tuple[str, str]:
    """The same line as a flow in another process prints it."""
    task, line = STAGES[stage]
    return f"Task run '{task}-", f"' - {line}\n"


def retune(world: FlowWorld, **parameters: Any) -> dict[str, Any]:
    """A retune in this process."""
    from tabletune_flows.retune import retune as flow

    return dict(flow(world.name, config=world.config, **parameters))


def sure(world: FlowWorld) -> None:
    """Margins that the stand-in's table holds on the busiest host, so that it is promoted."""
    world.configure(margins={"best_fixed": 0.9, "incumbent": 0.9, "no_speculation": 0.9})


def back(stack: LocalStack, *names: str) -> None:
    """Start servers that were killed, and wait until they answer."""
    for name in names:
        stack.launch(name)
    for name in names:
        stack.wait_until_up(name)
    process = stack.services["s3"].process if "s3" in names else None
    if process is not None:  # it answers before it reads what it held
        given = stack.client_environment()
        keys = given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"]
        wait_until_ready(client_of(stack.urls["s3"], *keys), process, stack.log("s3"))


@contextlib.contextmanager
def revived(stack: LocalStack) -> Iterator[None]:
    """Afterwards every server runs, also where a test fails, for the tests that follow."""
    try:
        yield
    finally:
        parts = stack.services.items()
        back(stack, *(n for n, s in parts if s.process is None or s.process.poll() is not None))


def records_of(world: FlowWorld) -> dict[str, bytes]:
    """What the world's runs have finished measuring, by name."""
    found = world.out.glob("records/*/*.json")
    return {path.name: path.read_bytes() for path in found if "partial" not in path.name}


def nothing_left(world: FlowWorld) -> None:
    """No engine, no lock, no slot that a dead run holds; the store is sound."""
    wait_until(lambda: not world.engine.living(), "engines are gone")
    # The kernel lets go of a killed process's files a moment after the process is out of sight.
    with gpu_lock([], "a drill", wait_s=10), Workspace(world.out).locked():
        pass
    assert problems(world.store) == []
    check_decisions(world)


def reaped(world: FlowWorld) -> None:
    """After a run that came to its end: the markers of dead runs are gone too."""
    nothing_left(world)
    assert [marker.what for marker in markers(marker_folder())] == []


def check_decisions(world: FlowWorld) -> None:
    """Every move of the live channel names a decision that is kept, and follows from it."""
    for state in world.store.history("live"):
        name = state.reason.removeprefix("decision ").partition(":")[0]
        decision = world.store.get(PromotionDecision, name)
        assert (decision.to_version, decision.from_pointer) == (
            state.table_version,
            state.previous_pointer,
        )


def free_slots() -> None:
    """What an operator does who does not want to wait until the lease of a minute is over."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate

    with get_client(sync_client=True) as client:
        for limit in client.read_global_concurrency_limits():
            if limit.active_slots:
                none = GlobalConcurrencyLimitUpdate(active_slots=0)
                client.update_global_concurrency_limit(limit.name, none)


def outbox(world: FlowWorld) -> list[pathlib.Path]:
    """The entries that wait for MLflow."""
    return sorted((world.out / "outbox").glob("*.json"))


def tracked_once(world: FlowWorld, version: str) -> None:
    """MLflow has the version, by its alias, in one finished run with its report; nothing waits."""
    from mlflow import MlflowClient

    assert outbox(world) == []
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    champion = client.get_model_version_by_alias(f"tabletune.{world.name}", "champion")
    assert champion.tags["table_version"] == version
    experiment = client.get_experiment_by_name(f"tabletune.{world.name}")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    of_it = [p for p in parents if p.data.tags["tabletune.table_version"] == version]
    assert [run.info.status for run in runs] == ["FINISHED"] * len(runs)
    assert [run.info.run_id for run in of_it] == [champion.run_id]
    listed = {found.path for found in client.list_artifacts(str(champion.run_id), "report")}
    assert "report/report.html" in listed
