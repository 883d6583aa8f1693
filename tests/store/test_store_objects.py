"""Objects in a folder store: content addresses, damage, names."""

import hashlib
import pathlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tabletune.records.base import Record, RecordError
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store.base import Store
from tabletune.store.check import problems
from tabletune.store.errors import (
    BadName,
    ObjectCorrupt,
    ObjectMissing,
)
from tabletune.store.folder import FolderStore
from tests.records import strategies
from tests.store.world import World, make_version, snapshot


def test_a_folder_store_is_a_store(tmp_path: pathlib.Path) -> None:
    store: Store = FolderStore(tmp_path)
    assert store.list(Verdict) == ()


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(record=strategies.any_record)
def test_any_record_is_put_and_got(tmp_path: pathlib.Path, record: Record) -> None:
    store = FolderStore(tmp_path / "store")
    name = store.put(record)
    assert name == record.content_hash
    assert FolderStore(tmp_path / "store").get(type(record), name) == record
    assert name in store.list(type(record))


def test_putting_again_changes_nothing(world: World) -> None:
    world.store.put(make_version(1))
    before = snapshot(world.root)
    times = {path: (world.root / path).stat().st_mtime_ns for path in before}
    world.store.put(make_version(1))
    assert snapshot(world.root) == before
    assert times == {path: (world.root / path).stat().st_mtime_ns for path in before}


def test_an_object_that_is_not_there_is_named(world: World) -> None:
    with pytest.raises(ObjectMissing, match=f"the verdict {'a' * 64}") as caught:
        world.store.get(Verdict, "a" * 64)
    assert caught.value.kind == "verdict"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b"test 1", b"test 2"),
        lambda data: data + b"\n",
    ],
    ids=["cut", "empty", "edited", "appended"],
)
def test_a_damaged_object_is_refused_and_putting_it_again_repairs_it(
    world: World, damage: Any
) -> None:
    name = world.store.put(make_version(1))
    path = world.root / "objects" / "table_version" / f"{name}.json"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ObjectCorrupt) as caught:
        world.store.get(TableVersion, name)
    assert (caught.value.kind, caught.value.name) == ("table_version", name)
    assert str(path) in str(caught.value)
    assert "put the same table_version again, which repairs it" in str(caught.value)
    assert any(name[:12] in line for line in problems(world.store))
    world.store.put(make_version(1))
    assert world.store.get(TableVersion, name) == make_version(1)
    assert problems(world.store) == []


def test_an_intact_object_of_a_newer_format_asks_for_an_upgrade(world: World) -> None:
    data = make_version(1).to_json().replace(b'"format_version":1', b'"format_version":2')
    name = hashlib.sha256(data).hexdigest()
    path = world.root / "objects" / "table_version" / f"{name}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(RecordError, match="upgrade tabletune"):
        world.store.get(TableVersion, name)


@pytest.mark.parametrize("name", ["", "x", "../../store", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_a_name_that_is_no_hash_is_never_a_path(world: World, name: str) -> None:
    with pytest.raises(BadName, match="content hash"):
        world.store.get(Verdict, name)
