"""Fixtures that several test folders share."""

import os
import pathlib
import signal

import pytest

# A shell starts what it puts into the background with SIGINT ignored, and programs inherit
# that. The programs that these tests interrupt must be able to hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        default=False,
        help="write golden files anew instead of comparing; say why in CHANGELOG.md",
    )


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
