"""Fixtures for the tests of the follower."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.faulty_server import FaultyServer
from tests.plugin.source.following import Channel, make_model
from tests.store.fixtures import place, s3_place, s3_server
from tests.store.places import FolderPlace, Place

__all__ = ["channel", "folder_channel", "place", "s3_place", "s3_server", "web"]


@pytest.fixture
def channel(place: Place, tmp_path: pathlib.Path) -> Channel:
    """A channel in a folder or in S3, without a version."""
    return Channel(place, make_model(tmp_path / "model"))


@pytest.fixture
def folder_channel(tmp_path: pathlib.Path) -> Channel:
    return Channel(FolderPlace(tmp_path / "store"), make_model(tmp_path / "model"))


@pytest.fixture
def web(folder_channel: Channel) -> Iterator[FaultyServer]:
    """A web server that shows the folder's store, with faults at will."""
    with FaultyServer(folder_channel.files()).start() as server:
        yield server
