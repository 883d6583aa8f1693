"""Starting and stopping engines: faults are shown, nothing is left behind."""

import contextlib
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable

import pytest

from tabletune.measure import runner, supervise
from tabletune.measure.engine_errors import (
    EngineDied,
    EngineNotReady,
    EngineNotStarted,
    PortTaken,
)
from tabletune.measure.launch import EngineLaunch, PluginMode
from tabletune.measure.runner import BootProgress, start_engine
from tests.engines import engine_launch

FAKE = pathlib.Path(__file__).with_name("fake_engine.py")
ROOT = pathlib.Path(__file__).parents[2]


def fake_launch(folder: pathlib.Path, mode: str, port: int | None = None) -> EngineLaunch:
    command = (sys.executable, str(FAKE), "{port}", mode, str(folder / "pids"))
    return EngineLaunch(
        python=pathlib.Path(sys.executable),
        model="fake",
        log_path=folder / "engine.log",
        command=command,
        port=port,
    )


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_for(condition: Callable[[], bool], limit_s: float = 20.0) -> bool:
    """Wait for another process; returns whether the condition came true."""
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRACE_S", 0.3)


def test_serves_and_stops(tmp_path: pathlib.Path) -> None:
    """A healthy engine answers, reports its phase, and is gone after the block."""
    seen: list[BootProgress] = []
    with start_engine(fake_launch(tmp_path, "serve"), progress=seen.append) as engine:
        assert engine.is_healthy()
        assert engine.died() is None
        engine.check("resting")
        pid = engine.pid
        assert pid is not None
        assert alive(pid)
    assert not alive(pid)
    assert "loading weights" in {progress.phase for progress in seen}
    assert engine.stop() == []  # a second stop is harmless


def test_death_at_boot_shows_status_log_and_hint(tmp_path: pathlib.Path) -> None:
    with pytest.raises(EngineDied) as caught:
        start_engine(fake_launch(tmp_path, "dies"))
    assert caught.value.exit_status == 2
    assert "unrecognized arguments: --nonsense" in str(caught.value)
    assert "--engine-arg" in caught.value.hint
    assert "starting" in caught.value.while_doing


def test_a_hanging_engine_is_stopped_at_the_deadline(
    tmp_path: pathlib.Path, short_grace: None
) -> None:
    started: list[runner.RunningEngine] = []
    original = runner.RunningEngine.wait_until_healthy

    def remember(self: runner.RunningEngine, *arguments: object) -> None:
        started.append(self)
        original(self, *arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.RunningEngine, "wait_until_healthy", remember)
        with pytest.raises(EngineNotReady) as caught:
            start_engine(fake_launch(tmp_path, "hangs"), deadline_s=1.0)
    assert caught.value.phase == "loading weights"
    assert "Starting to load model fake" in str(caught.value)
    pid = started[0].pid
    assert pid is not None
    assert not alive(pid)


def test_a_lost_engine_whose_server_stays_is_given_up(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's server can wait for ever for a core that has failed."""
    monkeypatch.setattr(runner, "FATAL_GRACE_S", 0.3)
    with pytest.raises(EngineDied, match="reported a fatal error") as caught:
        start_engine(fake_launch(tmp_path, "stuck"))
    assert caught.value.cause == "torch.InductorError: InvalidCxxCompiler: none found"
    assert "apt-get install g++" in caught.value.hint


def test_death_in_operation_is_seen(tmp_path: pathlib.Path) -> None:
    with start_engine(fake_launch(tmp_path, "serve")) as engine:
        connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/die")
            connection.getresponse()
        assert wait_for(lambda: engine.died() is not None)
        with pytest.raises(EngineDied, match="status 7 while profiling") as caught:
            engine.check("profiling")
    assert "FULL_DECODE_ONLY" in caught.value.hint


def test_descendants_in_their_own_sessions_are_ended(
    tmp_path: pathlib.Path, short_grace: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a family that ignores SIGINT and SIGTERM; a bystander is left alone."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with start_engine(fake_launch(tmp_path, "family")):
            pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
            assert len(pids) == 3
            assert all(alive(pid) for pid in pids)
        assert not [pid for pid in pids if alive(pid)]
        assert alive(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


OWNER = """
    import pathlib, sys
    sys.path.insert(0, {root!r})
    from tests.measure.test_runner import fake_launch
    from tabletune.measure import runner
    runner.GRACE_S = 0.3
    with runner.start_engine(fake_launch(pathlib.Path({folder!r}), "family")):
        print("ready", flush=True)
        sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_engine_ends_with_its_owner(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    """However the owner ends, SIGKILL included, the whole family is gone soon after."""
    script = textwrap.dedent(OWNER).format(root=str(ROOT), folder=str(tmp_path))
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    with owner.stdout, owner.stdin:
        assert owner.stdout.readline() == "ready\n"
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        supervisors = {supervise.parents()[pids[0]]}
        owner.send_signal(number)
        owner.wait(60)
    assert wait_for(lambda: not any(alive(pid) for pid in [*pids, *supervisors]))


def test_killed_supervisor_does_not_save_the_engine(tmp_path: pathlib.Path) -> None:
    with start_engine(fake_launch(tmp_path, "family")) as engine:
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        os.kill(supervise.parents()[pids[0]], signal.SIGKILL)
        assert wait_for(lambda: engine.died() is not None)
    assert wait_for(lambda: not any(alive(pid) for pid in pids))


def test_a_taken_port_is_named(tmp_path: pathlib.Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)):
            start_engine(fake_launch(tmp_path, "serve", port))
    assert not (tmp_path / "engine.log").exists()


def test_a_port_lost_at_the_last_moment(tmp_path: pathlib.Path) -> None:
    """A free port is chosen again; a port asked for is named in the error."""
    with start_engine(fake_launch(tmp_path, "outrun")) as engine:
        assert engine.is_healthy()
    (tmp_path / "pids").unlink()
    port = engine.port
    with pytest.raises(PortTaken, match=str(port)):
        start_engine(fake_launch(tmp_path, "outrun", port))


def test_wrong_python_and_unwritable_log(tmp_path: pathlib.Path) -> None:
    launch = EngineLaunch(tmp_path / "none", "fake", tmp_path / "engine.log")
    with pytest.raises(EngineNotStarted, match="tabletune engine list"):
        start_engine(launch)
    (tmp_path / "file").write_text("")
    launch = EngineLaunch(pathlib.Path(sys.executable), "fake", tmp_path / "file" / "engine.log")
    with pytest.raises(EngineNotStarted, match=r"engine\.log"):
        start_engine(launch)


def test_an_exception_in_progress_stops_the_engine(tmp_path: pathlib.Path) -> None:
    """As Ctrl-C does."""

    def interrupt(progress: BootProgress) -> None:
        if progress.phase == "loading weights":
            raise KeyboardInterrupt

    before = set(supervise.descendants(os.getpid()))
    with pytest.raises(KeyboardInterrupt):
        start_engine(fake_launch(tmp_path, "hangs"), progress=interrupt)
    assert set(supervise.descendants(os.getpid())) <= before


def test_environment_of_each_plugin_mode(tmp_path: pathlib.Path) -> None:
    inherited = {
        "TABLETUNE_MEASURE": "1",
        "PYTHONPATH": "/x",
        "LD_PRELOAD": "",
        "VLLM_PLUGINS": "a",
    }

    def environment(mode: PluginMode, **more: bool) -> dict[str, str]:
        launch = EngineLaunch(
            pathlib.Path("python"), str(tmp_path), tmp_path / "log", plugin=mode, **more
        )
        return launch.full_environment(inherited)

    measure = environment(PluginMode.MEASURE)
    assert measure["VLLM_PLUGINS"] == "tabletune"
    assert measure["TABLETUNE_MEASURE"] == "1"
    assert measure["HF_HUB_OFFLINE"] == "1"
    assert measure["PYTHONPATH"] == "/x"
    off = environment(PluginMode.OFF, keep_pythonpath=False)
    assert off["VLLM_PLUGINS"] == ""
    assert not [key for key in off if key.startswith("TABLETUNE_")]
    assert "PYTHONPATH" not in off
    assert environment(PluginMode.SERVE)["VLLM_PLUGINS"] == "tabletune"
    assert "TABLETUNE_MEASURE" not in environment(PluginMode.SERVE)


@pytest.mark.engine
def test_a_real_engine_boots_answers_and_goes(
    tmp_path: pathlib.Path, engine_python: pathlib.Path, engine_model: pathlib.Path
) -> None:
    # It compiles, so it has two layers only, with invented weights.
    small = ("--load-format", "dummy", "--hf-overrides", '{"num_hidden_layers": 2}')
    launch = engine_launch(
        engine_python, engine_model, tmp_path / "engine.log", PluginMode.OFF, small
    )
    seen: list[BootProgress] = []
    with start_engine(launch, deadline_s=300, progress=seen.append) as engine:
        family = [engine.pid, *supervise.descendants(engine.pid or 0)]
        assert len(family) >= 2  # the server and its engine core at least
        connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=60)
        connection.request(
            "POST",
            "/v1/completions",
            body=f'{{"model": "{engine_model}", "prompt": "1 2 3 4", "max_tokens": 4}}',
            headers={"Content-Type": "application/json"},
        )
        assert connection.getresponse().status == 200
    assert not [pid for pid in family if pid is not None and alive(pid)]
    assert {"loading weights", "compiling"} <= {progress.phase for progress in seen}
