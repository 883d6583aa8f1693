"""The reaper stops what dead runs left behind, and nothing else."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tabletune.maintain.processes import ProcessId, own_process, start_ticks
from tabletune.maintain.reaper import VARIABLE, marked_run, markers, reap
from tests.maintain.scenes import FixedClock

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True);"
    "time.sleep(600)",
]
#: A run that starts an engine in a session of its own, which starts a core in another.
RUN = """
import pathlib, subprocess, sys
from tabletune.maintain.reaper import marked_run
core = "import time; time.sleep(600)"
engine = (
    "import subprocess, sys, time;"
    f"core = subprocess.Popen([sys.executable, '-c', {core!r}], start_new_session=True);"
    "print(core.pid, flush=True); time.sleep(600)"
)
with marked_run("retune chat", pathlib.Path(sys.argv[1])):
    child = subprocess.Popen([sys.executable, "-c", engine], start_new_session=True)
    print(child.pid, flush=True)
    sys.stdin.read()
"""

#: A run with a supervised engine, as every run has, that will not hear SIGTERM.
SUPERVISED = """
import pathlib, sys, time
from tabletune.maintain.reaper import marked_run
from tabletune.measure.launch import EngineLaunch
from tabletune.measure.runner import RunningEngine
folder = pathlib.Path(sys.argv[1])
stubborn = (
    "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "pathlib.Path(sys.argv[1], 'deaf').touch(); time.sleep(600)"
)
launch = EngineLaunch(
    python=pathlib.Path(sys.executable), model="m", log_path=folder / "engine.log",
    command=(sys.executable, "-c", stubborn, sys.argv[1]),
)
with marked_run("retune chat", folder):
    engine = RunningEngine(launch, 1)
    while engine.pid is None:
        engine.died()
        time.sleep(0.01)
    print(engine.pid, flush=True)
    print(engine._supervisor.pid, flush=True)
    sys.stdin.read()
"""


class RealClock(FixedClock):
    """The time that really passes."""

    def now_s(self) -> float:
        return time.monotonic()

    def sleep_s(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.02))


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of the test, ended after it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait(30)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def begin_run(
    folder: pathlib.Path, started: list[subprocess.Popen[str]], program: str = RUN
) -> tuple[int, int]:
    """A run with its engine and core (or supervisor) up; their process ids."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    started.append(process)
    assert process.stdout is not None
    engine, core = (int(process.stdout.readline()) for _ in range(2))
    return engine, core


def until(reached: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def dead(pid: int) -> bool:
    return start_ticks(pid) is None


def test_engine_and_core_of_a_killed_run_are_stopped(
    tmp_path: pathlib.Path, started: list[subprocess.Popen[str]]
) -> None:
    engine, core = begin_run(tmp_path, started)
    bystander = subprocess.Popen(SLEEP, text=True)
    started.append(bystander)
    assert reap(tmp_path, RealClock(), 0).stopped == ()
    started[0].kill()
    started[0].wait()
    assert not dead(engine)
    reaped = reap(tmp_path, RealClock(), 0)
    assert set(reaped.stopped) == {engine, core}
    assert reaped.left == ()
    assert reaped.runs[0].startswith("retune chat, since")
    until(lambda: dead(engine) and dead(core))
    assert not dead(bystander.pid)
    assert markers(tmp_path) == []


def test_a_supervised_engine_is_stopped_when_run_and_supervisor_are_killed(
    tmp_path: pathlib.Path, started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabletune.maintain.reaper.TERM_GRACE_S", 0.3)
    engine, supervisor = begin_run(tmp_path, started, SUPERVISED)
    until((tmp_path / "deaf").exists)
    os.kill(supervisor, signal.SIGKILL)
    started[0].kill()
    started[0].wait()
    until(lambda: dead(supervisor))
    assert not dead(engine)
    assert reap(tmp_path, RealClock(), 0).stopped == (engine,)
    until(lambda: dead(engine))


def test_a_run_that_lives_keeps_its_engine(
    tmp_path: pathlib.Path, started: list[subprocess.Popen[str]]
) -> None:
    engine, core = begin_run(tmp_path, started)
    for _ in range(2):
        assert reap(tmp_path, RealClock(), 0).stopped == ()
    assert not dead(engine)
    assert not dead(core)
    os.kill(engine, signal.SIGKILL)
    os.kill(core, signal.SIGKILL)


def test_what_ignores_sigterm_is_killed(
    tmp_path: pathlib.Path, started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabletune.maintain.reaper.TERM_GRACE_S", 0.3)
    with marked_run("retune", tmp_path, RealClock()) as marker:
        child = subprocess.Popen(STUBBORN, stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout is not None
        child.stdout.readline()
    assert marker.path.exists()  # what outlived the run is still to be found
    disown(marker.path)
    assert reap(tmp_path, RealClock(), 0).stopped == (child.pid,)
    assert child.wait(30) == -signal.SIGKILL


def disown(path: pathlib.Path) -> None:
    """Make a marker's run one that is dead: the same number, an earlier start."""
    facts = json.loads(path.read_text())
    facts["owner"]["start_ticks"] -= 1
    path.write_text(json.dumps(facts))


def test_a_supervisor_that_is_just_stopping_its_engine_is_given_the_time(
    tmp_path: pathlib.Path, started: list[subprocess.Popen[str]]
) -> None:
    with marked_run("retune", tmp_path, RealClock()) as marker:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"], text=True)
        started.append(child)
    disown(marker.path)
    assert reap(tmp_path, RealClock(), 30).stopped == ()
    assert child.wait(30) == 0


def test_a_run_that_ends_well_leaves_no_marker_and_no_variable(tmp_path: pathlib.Path) -> None:
    with marked_run("retune", tmp_path) as marker:
        assert os.environ[VARIABLE] == marker.word
        with pytest.raises(RuntimeError, match="one marked run"), marked_run("again", tmp_path):
            pytest.fail("two runs in one process")
    assert VARIABLE not in os.environ
    assert list(tmp_path.glob("run-*")) == []


def test_foreign_and_damaged_markers_stop_nothing(
    tmp_path: pathlib.Path, started: list[subprocess.Popen[str]]
) -> None:
    child = subprocess.Popen(SLEEP, env={**os.environ, VARIABLE: "x" * 32}, text=True)
    started.append(child)
    gone = ProcessId(1, 0, "another boot").facts()
    for name, text in {
        "run-1.json": "{",
        "run-2.json": json.dumps({"word": "2", "owner": gone, "what": "", "since": ""}),
        f"run-{'x' * 32}.json": json.dumps(
            {"word": "x" * 32, "owner": gone, "what": "", "since": ""}
        ),
        "run-3.json": json.dumps({"word": "", "owner": gone, "what": "", "since": ""}),
    }.items():
        (tmp_path / name).write_text(text)
    assert reap(tmp_path, RealClock(), 0).stopped == ()
    assert not dead(child.pid)


def test_a_process_is_known_by_more_than_its_number() -> None:
    me = own_process()
    assert me.lives()
    assert not ProcessId(me.pid, me.start_ticks + 1, me.boot).lives()
    assert not ProcessId(me.pid, me.start_ticks, "another boot").lives()
