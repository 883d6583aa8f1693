"""One real local stack for all tests of flows; they run on it in this process or in others."""

import contextlib
import os
import pathlib
import socket
from collections.abc import Iterator

import pytest

from infra.local_stack import LocalStack, Ports
from tests.flows.world import FlowWorld, new_world


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Prefect, MLflow and SeaweedFS, with this process as their client."""
    with running_stack(tmp_path_factory) as running:
        yield running


@contextlib.contextmanager
def running_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The three servers, and this process's environment as their clients need it."""
    pytest.importorskip("prefect")
    pytest.importorskip("mlflow")
    ports = free_ports()
    with LocalStack(tmp_path_factory.mktemp("stack"), ports) as running:
        home = tmp_path_factory.mktemp("prefect-client")
        added = running.client_environment() | {
            "PREFECT_HOME": str(home),
            # Other tests of this host are none of these runs' business.
            "TT_LOCK_FOLDER": str(tmp_path_factory.mktemp("locks")),
        }
        before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

        client = {
            PREFECT_API_URL: added["PREFECT_API_URL"],
            PREFECT_API_AUTH_STRING: added["PREFECT_API_AUTH_STRING"],
        }
        with temporary_settings(updates=client):
            yield running
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.fixture
def world(tmp_path: pathlib.Path, stack: LocalStack, request: pytest.FixtureRequest) -> FlowWorld:
    """A deployment of its own for one test."""
    name = request.node.name.split("[")[0].removeprefix("test_").replace("_", "-")
    return new_world(tmp_path, stack, name[:50].strip("-"))


def free_ports() -> Ports:
    """Ports that are free now; S3 takes five in a row, and those 10000 above.

    Processes that look at the same time look at different tens: a port counts as taken only once
    its server listens.
    """
    for first in range(21000 + os.getpid() % 1000 * 10, 45000, 10):
        wanted = [*range(first, first + 8), *range(first + 10000, first + 10008)]
        if all(_is_free(port) for port in wanted):
            return Ports(prefect=first, mlflow=first + 1, s3=first + 2)
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
