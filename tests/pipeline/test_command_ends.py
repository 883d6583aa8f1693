"""A run that is ended from outside, or whose engine dies: engines gone, measurements kept."""

import json
import os
import pathlib
import signal
import time

import pytest
from command_process import CommandProcess
from deployment import Deployment, wait_until
from fake_environment import FakeEnvironment

from tabletune.commands.exit_codes import ExitCode
from tabletune.durable_file import TEMPORARY_PREFIX

#: How long measure/api.py waits for an answer of an engine that may live.
API_TIMEOUT_S = 30.0


def end(process: CommandProcess, at: str, number: signal.Signals) -> int:
    """Send the signal once `at` was said; the exit status."""
    process.wait_for(at)
    process.send(number)
    return process.finish()


def kill_core(engine: FakeEnvironment, boot: int = -1) -> None:
    """The engine core dies, as by the kernel's out-of-memory killer."""
    os.kill(engine.boots()[boot]["core_pid"], signal.SIGKILL)


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        ("qualification", signal.SIGINT),
        ("profile", signal.SIGINT),
        ("verdict", signal.SIGINT),
        ("profile", signal.SIGTERM),
        ("verdict", signal.SIGHUP),
    ],
)
def test_a_signal_ends_a_run_in_any_stage(
    finished: Deployment, tmp_path: pathlib.Path, stage: str, number: signal.Signals
) -> None:
    status = 128 + number
    again = finished.copy(tmp_path, without=(stage,))
    at = {"qualification": "batch size 2 …", "profile": "profile …", "verdict": "validate …"}[stage]
    before = again.pointer()
    with again.start("run", "--json") as process:
        assert end(process, at, number) == status
    assert again.engine.living() == []
    assert "Traceback" not in process.errors
    assert "what was measured is kept" in process.errors
    assert process.json["error"]["exit_status"] == status
    assert again.pointer() == before
    assert list(again.out.rglob(f"{TEMPORARY_PREFIX}*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_boot(deployment: Deployment, number: signal.Signals) -> None:
    hanging = {"FAKE_ENGINE_BOOT": "hangs"}
    with deployment.start("run", environment=hanging) as process:
        wait_until(lambda: len(deployment.engine.boots()) == 1)
        process.send(number)
        assert process.finish() == 128 + number
    assert deployment.engine.living() == []
    assert "Traceback" not in process.errors


def test_a_signal_ends_two_boots_side_by_side(finished: Deployment, tmp_path: pathlib.Path) -> None:
    """The stock engine and the plain one boot on threads of their own, and hang here."""
    again = finished.copy(tmp_path, without=("verdict",))
    hanging = {"FAKE_ENGINE_BOOT": "hangs_without_plugin"}
    with again.start("run", environment=hanging) as process:
        process.wait_for("boot the stock engine")
        wait_until(lambda: len(again.engine.boots()) == 3)
        process.send(signal.SIGINT)
        assert process.finish() == ExitCode.INTERRUPTED
    assert again.engine.living() == []
    assert "Traceback" not in process.errors


def test_a_killed_run_leaves_no_engine(finished: Deployment, tmp_path: pathlib.Path) -> None:
    again = finished.copy(tmp_path, without=("profile",))
    with again.start("run") as process:
        assert end(process, "profile …", signal.SIGKILL) == -signal.SIGKILL
    assert len(again.engine.boots()) == 1
    wait_until(lambda: again.engine.living() == [])  # its supervisor stops it


@pytest.mark.parametrize("lingers", ["", "fails", "ignores"])
def test_an_engine_that_dies_in_the_profile_is_replaced(
    finished: Deployment, tmp_path: pathlib.Path, lingers: str
) -> None:
    """Whether its server ends, or stays and fails every call, or ignores the plugin's."""
    again = finished.copy(tmp_path, without=("profile",))
    environment = {"FAKE_ENGINE_LINGERS": lingers}
    with again.start("profile", "--json", environment=environment) as process:
        process.wait_for("profile …")
        kill_core(again.engine)
        assert process.finish() == ExitCode.OK, process.errors
    assert "the engine died while profiling; cells are kept" in process.errors
    assert len(again.engine.boots()) == 2
    assert again.engine.living() == []


def test_a_profile_goes_on_in_a_later_run(finished: Deployment, tmp_path: pathlib.Path) -> None:
    again = finished.copy(tmp_path, without=("profile",))
    partial = finished.record("profile")
    kept = json.loads(partial.read_bytes())
    kept["cells"] = [c for c in kept["cells"] if c["batch_size"] == 4]
    (again.record("qualification").parent / "profile-partial.json").write_text(json.dumps(kept))
    ended = again.run("profile")
    assert ended.process.returncode == ExitCode.OK, ended.errors
    assert f"going on from {len(kept['cells'])} cells of an unfinished profile" in ended.errors
    now = json.loads(again.record("profile").read_bytes())
    samples = {(c["batch_size"], c["draft_length"]): c["samples_s"] for c in now["cells"]}
    for cell in kept["cells"]:  # an uncertain one may get more
        count = len(cell["samples_s"])
        assert samples[4, cell["draft_length"]][:count] == cell["samples_s"]
    assert not list(again.out.rglob("profile-partial.json"))


@pytest.mark.parametrize(
    ("without", "at", "status"),
    [
        ("qualification", "batch size 2 …", ExitCode.MEASUREMENT),
        ("acceptance", "acceptance …", ExitCode.ENGINE),
        ("verdict", "validate …", ExitCode.ENGINE),
    ],
)
@pytest.mark.parametrize("lingers", ["", "fails", "ignores"])
def test_an_engine_that_dies_elsewhere_ends_the_run(
    finished: Deployment, tmp_path: pathlib.Path, without: str, at: str, status: int, lingers: str
) -> None:
    again = finished.copy(tmp_path, without=(without,))
    before = again.pointer()
    environment = {"FAKE_ENGINE_LINGERS": lingers}
    with again.start("run", "--json", environment=environment) as process:
        process.wait_for(at)
        kill_core(again.engine)
        killed_s = time.monotonic()
        assert process.finish() == status, process.errors
    # Not after the time that an answer may take: what the engine logged tells.
    assert time.monotonic() - killed_s < API_TIMEOUT_S
    assert "Traceback" not in process.errors
    assert "EngineDeadError: EngineCore died unexpectedly" in process.errors
    assert again.engine.living() == []
    assert again.pointer() == before
    assert again.record("profile").exists()


def test_a_stock_engine_that_dies_is_told(finished: Deployment, tmp_path: pathlib.Path) -> None:
    again = finished.copy(tmp_path, without=("verdict",))
    with again.start("run") as process:
        process.wait_for("validate beside the stock engine and the one without speculation …")
        others = again.engine.boots()[1:]
        stock = next(boot for boot in others if "--speculative-config" in boot["arguments"])
        os.kill(stock["core_pid"], signal.SIGKILL)
        assert process.finish() == ExitCode.ENGINE, process.errors
    assert "stock.log" in process.errors
    assert again.engine.living() == []


@pytest.mark.parametrize("fault", ["dies", "plugin_off"])
def test_an_engine_that_does_not_come_up(deployment: Deployment, fault: str) -> None:
    ended = deployment.run("run", "--json", environment={"FAKE_ENGINE_BOOT": fault})
    assert ended.process.returncode == ExitCode.ENGINE, ended.errors
    expected = {"dies": "CUDA out of memory", "plugin_off": "plugin in the engine is off"}[fault]
    assert expected in ended.json["error"]["message"]
    assert "01-measuring.log" in ended.json["error"]["message"]
    assert "Traceback" not in ended.errors
    assert deployment.engine.living() == []


def test_a_second_interrupt_does_not_leave_an_engine(deployment: Deployment) -> None:
    """Its supervisor goes on stopping it."""
    with deployment.start("run") as process:
        process.wait_for("batch size 1 …")
        process.send(signal.SIGINT)
        process.send(signal.SIGINT)
        assert process.finish() == ExitCode.INTERRUPTED, process.errors
    wait_until(lambda: deployment.engine.living() == [])
