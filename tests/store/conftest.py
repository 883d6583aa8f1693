"""Fixtures for the store's tests, most of which run over a folder and over S3."""

import pathlib

import pytest

from tests.store.fixtures import place, s3_place, s3_server
from tests.store.places import Place
from tests.store.world import World

__all__ = ["folder_world", "place", "s3_place", "s3_server", "world"]


@pytest.fixture
def world(place: Place) -> World:
    return World(place)


@pytest.fixture
def folder_world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path / "store")
