"""Objects in a store: content addresses, damage, names."""

import hashlib
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
from tests.records import strategies
from tests.store.places import Place
from tests.store.world import World, make_version


def test_an_empty_place_is_an_empty_store(place: Place) -> None:
    store: Store = place.open()
    assert store.list(Verdict) == ()
    assert place.snapshot() == {}  # reading makes nothing


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(record=strategies.any_record)
def test_any_record_is_put_and_got(place: Place, record: Record) -> None:
    store = place.open()
    name = store.put(record)
    assert name == record.content_hash
    assert place.open().get(type(record), name) == record
    assert name in store.list(type(record))


def test_putting_again_changes_nothing(world: World) -> None:
    world.store.put(make_version(1))
    before = world.place.snapshot()
    marks = world.place.marks()
    world.store.put(make_version(1))
    assert world.place.snapshot() == before
    assert world.place.marks() == marks


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
    key = f"objects/table_version/{name}.json"
    world.place.write(key, damage(world.place.read(key)))
    with pytest.raises(ObjectCorrupt) as caught:
        world.store.get(TableVersion, name)
    assert (caught.value.kind, caught.value.name) == ("table_version", name)
    assert key in str(caught.value)
    assert "put the same table_version again, which repairs it" in str(caught.value)
    assert any(name[:12] in line for line in problems(world.store))
    world.store.put(make_version(1))
    assert world.store.get(TableVersion, name) == make_version(1)
    assert problems(world.store) == []


def test_an_intact_object_of_a_newer_format_asks_for_an_upgrade(world: World) -> None:
    data = make_version(1).to_json().replace(b'"format_version":1', b'"format_version":2')
    name = hashlib.sha256(data).hexdigest()
    world.place.write(f"objects/table_version/{name}.json", data)
    with pytest.raises(RecordError, match="upgrade tabletune"):
        world.store.get(TableVersion, name)


@pytest.mark.parametrize("name", ["", "x", "../../store", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_a_name_that_is_no_hash_is_never_a_path(world: World, name: str) -> None:
    with pytest.raises(BadName, match="content hash"):
        world.store.get(Verdict, name)


def test_what_is_removed_is_gone_and_no_error_twice(world: World) -> None:
    names = [world.store.put(make_version(number)) for number in range(2)]
    before = world.place.snapshot()
    for _ in range(2):
        world.store.remove(TableVersion, names[0])
    gone = before.keys() - world.place.snapshot().keys()
    assert gone == {f"objects/table_version/{names[0]}.json"}
    with pytest.raises(BadName):
        world.store.remove(TableVersion, "../../store")
