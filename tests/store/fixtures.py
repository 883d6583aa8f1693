"""Fixtures of the places that stores are kept in; a conftest imports the ones it needs."""

import itertools
import os
import pathlib

import pytest

from tests.s3_server import ACCESS_KEY, SECRET_KEY, NoServer, S3Server, running_server
from tests.store.places import FolderPlace, Place, S3Prefix

_prefixes = (f"store-{os.getpid()}-{number}" for number in itertools.count())


@pytest.fixture
def s3_server(monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The real S3 server of this test run, with its credentials in the environment."""
    try:
        server = running_server()
    except NoServer as error:
        pytest.skip(str(error))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return server


@pytest.fixture
def s3_place(s3_server: S3Server) -> S3Prefix:
    """An empty prefix."""
    return S3Prefix(s3_server, next(_prefixes))


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Place:
    """An empty place for a store."""
    if request.param == "folder":
        return FolderPlace(tmp_path / "store")
    found: S3Prefix = request.getfixturevalue("s3_place")
    return found
