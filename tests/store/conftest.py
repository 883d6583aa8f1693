"""Fixtures for the store's tests."""

import pathlib

import pytest

from tests.store.world import World


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path / "store")
