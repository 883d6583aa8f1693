"""Fixtures that several test folders share."""

import os
import pathlib
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tabletune.measure.api import EngineAddress, EngineApi
from tabletune.measure.launch import PluginMode
from tabletune.measure.runner import start_engine
from tests.engines import BOOT_DEADLINE_S, SharedEngine, engine_launch

# Examples run beside other tests and engines: how long one takes says nothing.
hypothesis.settings.register_profile("shared-machine", deadline=None)
hypothesis.settings.load_profile("shared-machine")

# A shell starts what it puts into the background with SIGINT ignored, nohup with SIGHUP, and
# programs inherit that. The programs that these tests interrupt must be able to hear both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # Heard by a program that this one starts, deaf here: under nohup the tests go on.
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        default=False,
        help="write golden files anew instead of comparing; say why in CHANGELOG.md",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the shared engine first, the one that ends it last of them, then all others.

    So it is gone before tests boot several engines of their own.
    """

    def turn(item: pytest.Item) -> int:
        if "measuring_engine" not in getattr(item, "fixturenames", ()):
            return 2
        return int(item.get_closest_marker("ends_engine") is not None)

    items.sort(key=turn)


@pytest.fixture(scope="session")
def engine_python() -> pathlib.Path:
    """The Python of an engine environment, from TABLETUNE_TEST_ENGINE_PYTHON."""
    path = os.environ.get("TABLETUNE_TEST_ENGINE_PYTHON")
    if not path:
        pytest.skip("set TABLETUNE_TEST_ENGINE_PYTHON to an engine environment's python")
    return pathlib.Path(path)


@pytest.fixture(scope="session")
def engine_model() -> pathlib.Path:
    """The folder of a small real model, from TABLETUNE_TEST_MODEL."""
    path = os.environ.get("TABLETUNE_TEST_MODEL")
    if not path:
        pytest.skip("set TABLETUNE_TEST_MODEL to a folder with a small real model")
    return pathlib.Path(path)


@pytest.fixture(scope="session")
def measuring_engine(
    engine_python: pathlib.Path,
    engine_model: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SharedEngine]:
    """One real engine with the measuring plugin, for all tests that need no other.

    A test leaves it as it found it: no pin, and the boot table in force.
    """
    log = tmp_path_factory.mktemp("measuring") / "engine.log"
    launch = engine_launch(engine_python, engine_model, log, PluginMode.MEASURE)
    with (
        start_engine(launch, BOOT_DEADLINE_S) as engine,
        EngineApi(EngineAddress(engine.base_url), lost=engine.is_lost) as api,
    ):
        yield SharedEngine(engine, api, api.model().name)
