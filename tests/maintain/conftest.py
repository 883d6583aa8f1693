"""Fixtures for the tests of maintenance: places for stores, as in the store's own tests."""

from tests.store.fixtures import place, s3_place, s3_server

__all__ = ["place", "s3_place", "s3_server"]
