"""An engine whose log's disk is full: it serves on, or its end is explained."""

import http.client
import pathlib
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tabletune.measure import engine_log
from tabletune.measure.engine_errors import EngineDied, NoRoomForLog
from tabletune.measure.launch import EngineLaunch
from tabletune.measure.runner import RunningEngine, start_engine
from tests.small_disk import mounted

FAKE = pathlib.Path(__file__).with_name("fake_engine.py")


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A real file system of 2 MiB, where this user may mount one."""
    with mounted(tmp_path / "disk", 2048) as mount:
        yield mount


def launch_on(disk: pathlib.Path, mode: str) -> EngineLaunch:
    command = (sys.executable, str(FAKE), "{port}", mode, str(disk / "filler"))
    log_path = disk / "engine.log"
    return EngineLaunch(pathlib.Path(sys.executable), "fake", log_path, command=command)


def get(engine: RunningEngine, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def wait_until(reached: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Return once another process has made it so."""
    end_s = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.02)


def test_no_engine_is_started_on_a_full_disk(disk: pathlib.Path) -> None:
    assert engine_log.no_room(disk / "engine.log") == ""
    (disk / "filler").write_bytes(b"x" * (1536 << 10))
    with pytest.raises(NoRoomForLog, match="No space left on device") as caught:
        start_engine(launch_on(disk, "serve"))
    assert "free some space" in str(caught.value)
    assert [path.name for path in disk.iterdir()] == ["filler"]
    (disk / "filler").unlink()
    with start_engine(launch_on(disk, "serve")) as engine:
        assert engine.is_healthy()


def test_an_engine_that_serves_goes_on_without_its_log(disk: pathlib.Path) -> None:
    with start_engine(launch_on(disk, "serve")) as engine:
        before = (disk / "engine.log").stat().st_size
        assert get(engine, "/fill") == 200
        for _ in range(3):
            assert get(engine, "/words") == 200
        assert (disk / "engine.log").stat().st_size - before < 3 * 4096
        assert engine.is_healthy()
        engine.check("resting")
        assert get(engine, "/die") == 0
        wait_until(engine.is_lost)
        with pytest.raises(EngineDied) as caught:
            engine.check("profiling")
    assert caught.value.exit_status == 7
    assert "The disk of the engine's log is full (No space left on device)" in caught.value.hint


def test_an_engine_that_dies_of_a_full_disk_says_so(disk: pathlib.Path) -> None:
    """What it prints otherwise than through logging ends it, and the reason is in no log."""
    with pytest.raises(EngineDied) as caught:
        start_engine(launch_on(disk, "fills"))
    assert caught.value.exit_status == 1
    assert "may be that it could not write it. Free some space" in str(caught.value)


def test_a_program_that_cannot_run_is_told_without_a_log(disk: pathlib.Path) -> None:
    command = (str(disk / "none"), "{port}")
    launch = EngineLaunch(pathlib.Path(sys.executable), "fake", disk / "log", command=command)
    with pytest.raises(EngineDied, match=r"could not run the engine's Python: .*No such file"):
        start_engine(launch)
    assert (disk / "log").read_bytes() == b""
