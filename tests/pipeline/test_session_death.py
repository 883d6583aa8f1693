"""How long a call that failed waits to learn that its engine has died."""

import pathlib
import sys
from collections.abc import Iterator

import pytest

from tabletune.measure.api import EngineAddress, EngineApi, ServedModel
from tabletune.measure.launch import EngineLaunch
from tabletune.measure.runner import start_engine
from tabletune.pipeline.session import DEATH_NOTICE_S, DEATH_WITHOUT_LOG_S, LiveEngine
from tests.small_disk import mounted
from tests.stepping_clock import SteppingClock

FAKE = pathlib.Path(__file__).parents[1] / "measure" / "fake_engine.py"


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A real file system of 2 MiB, where this user may mount one."""
    with mounted(tmp_path / "disk", 2048) as mount:
        yield mount


def test_an_engine_without_a_log_is_waited_for_longer(disk: pathlib.Path) -> None:
    """With one, the fatal error it logs tells at once; without, only its end does."""
    command = (sys.executable, str(FAKE), "{port}", "serve")
    launch = EngineLaunch(pathlib.Path(sys.executable), "fake", disk / "log", command=command)
    with start_engine(launch) as engine, EngineApi(EngineAddress(engine.base_url)) as api:
        live = LiveEngine(engine, api, ServedModel("fake", 1024))
        clock = SteppingClock()
        assert live.death("resting", clock) is None
        assert clock.s == pytest.approx(DEATH_NOTICE_S, abs=0.3)
        (disk / "filler").write_bytes(b"x" * (1536 << 10))
        clock = SteppingClock()
        assert live.death("resting", clock) is None
        assert clock.s == pytest.approx(DEATH_WITHOUT_LOG_S, abs=0.3)
