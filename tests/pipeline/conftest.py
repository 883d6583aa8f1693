"""Fixtures for tests of the whole pipeline on a stand-in engine."""

import pathlib

import pytest
from deployment import Deployment, new_deployment
from fake_environment import FakeEnvironment, make_environment

from tabletune.commands.exit_codes import ExitCode


@pytest.fixture
def fake_engine_environment(tmp_path: pathlib.Path) -> FakeEnvironment:
    """An engine environment without vLLM; see fake_environment.py."""
    return make_environment(tmp_path / "engine")


@pytest.fixture
def deployment(tmp_path: pathlib.Path) -> Deployment:
    """A deployment on a stand-in engine of which nothing was measured yet."""
    return new_deployment(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """One that was measured, validated and promoted. Tests take a `copy` of it."""
    made = new_deployment(tmp_path_factory.mktemp("finished"))
    ended = made.run("run", "--json")
    assert ended.process.returncode == ExitCode.OK, ended.errors
    return made
