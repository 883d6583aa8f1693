"""Pointers in a store: moves, lost races, damage, history."""

from typing import Any

import pytest

from tabletune.records.pointer import Pointer
from tabletune.records.table import TableVersion
from tabletune.store.base import Token
from tabletune.store.check import problems
from tabletune.store.errors import (
    BadName,
    LostRace,
    ObjectMissing,
    PointerCorrupt,
    StoreError,
)
from tests.store.world import World, after, make_version, pointer_for


@pytest.mark.parametrize("channel", ["", "..", "../live", "Live", "a/b", "a" * 64, "live\n", "/x"])
def test_a_channel_that_is_no_name_is_never_a_path(world: World, channel: str) -> None:
    before = world.place.snapshot()
    with pytest.raises(BadName, match="channel name"):
        world.store.read_pointer(channel)
    with pytest.raises(BadName, match="channel name"):
        world.store.move_pointer(channel, pointer_for("a" * 64), Token())
    assert world.place.snapshot() == before


def test_a_channel_without_a_pointer_reads_as_none(world: World) -> None:
    assert world.store.read_pointer("live") == (None, Token())
    assert list(world.store.history("live")) == []
    assert world.store.channels() == ()


def test_a_pointer_moves_and_its_history_is_kept(world: World) -> None:
    versions = [world.store.put(make_version(number)) for number in range(3)]
    world.store.move_pointer("live", pointer_for(versions[0]), Token())
    for version in versions[1:]:
        pointer, token = world.store.read_pointer("live")
        assert pointer is not None
        world.store.move_pointer("live", after(pointer, token, version), token)
    world.store.move_pointer("canary", pointer_for(versions[2], "canary"), Token())
    assert [state.table_version for state in world.store.history("live")] == versions[::-1]
    assert [state.sequence for state in world.store.history("live")] == [3, 2, 1]
    assert world.store.channels() == ("canary", "live")
    assert len(world.store.list(Pointer)) == 4


def test_who_read_before_someone_else_moved_is_told_who_won(world: World) -> None:
    first, second = (world.store.put(make_version(number)) for number in range(2))
    world.store.move_pointer("live", pointer_for(first, moved_by="nightly"), Token())
    before = world.place.snapshot()
    with pytest.raises(LostRace) as caught:
        world.store.move_pointer("live", pointer_for(second), Token())
    assert caught.value.winner is not None
    assert caught.value.winner.table_version == first
    assert "put in force by nightly" in str(caught.value)
    assert "nothing was changed" in str(caught.value)
    assert world.place.snapshot() == before


def test_a_pointer_that_vanished_is_a_lost_race_too(world: World) -> None:
    version = world.store.put(make_version(0))
    world.store.move_pointer("live", pointer_for(version), Token())
    pointer, token = world.store.read_pointer("live")
    assert pointer is not None
    world.place.remove("channels/live/pointer.json")
    with pytest.raises(LostRace, match="no pointer at all"):
        world.store.move_pointer("live", after(pointer, token, version), token)


@pytest.mark.parametrize(
    "changes",
    [{"sequence": 3}, {"previous_version": "a" * 64}, {"previous_pointer": "a" * 64}],
)
def test_a_state_that_does_not_follow_is_refused(world: World, changes: dict[str, Any]) -> None:
    version = world.store.put(make_version(0))
    world.store.move_pointer("live", pointer_for(version), Token())
    pointer, token = world.store.read_pointer("live")
    assert pointer is not None
    before = world.place.snapshot()
    wrong = after(pointer, token, version).model_copy(update=changes)
    with pytest.raises(StoreError, match="make the new pointer from the one that was read"):
        world.store.move_pointer("live", wrong, token)
    with pytest.raises(StoreError, match="make the new pointer"):
        world.store.move_pointer("canary", pointer_for(version, "live"), Token())
    assert world.place.snapshot() == before


def damaged_pointers() -> list[tuple[str, bytes, str]]:
    return [
        ("half", b'{"action":"for', "not strict JSON"),
        ("empty", b"", "not strict JSON"),
        ("foreign", b'{"kind":"table","format_version":1}', "its kind is 'table'"),
        ("forged", pointer_for("b" * 64).to_json(), "never put in force here"),
    ]


@pytest.mark.parametrize(("name", "data", "reason"), damaged_pointers())
def test_a_damaged_pointer_is_refused_and_never_moved_over(
    world: World, name: str, data: bytes, reason: str
) -> None:
    version = world.store.put(make_version(0))
    state = world.store.move_pointer("live", pointer_for(version), Token())
    key = "channels/live/pointer.json"
    world.place.write(key, data)
    with pytest.raises(PointerCorrupt, match=reason) as caught:
        world.store.read_pointer("live")
    assert "table versions themselves are untouched" in str(caught.value)
    with pytest.raises(PointerCorrupt):
        world.store.move_pointer("live", pointer_for(version), Token(state, state))
    assert world.place.read(key) == data
    # The advice works: the state that was last in force is still there to copy.
    world.place.write(key, world.place.read(f"objects/pointer/{state}.json"))
    assert world.store.read_pointer("live")[1].state == state


def test_a_state_of_another_channel_is_no_state_of_this_one(world: World) -> None:
    version = world.store.put(make_version(0))
    world.store.move_pointer("canary", pointer_for(version, "canary"), Token())
    data = world.place.read("channels/canary/pointer.json")
    world.place.write("channels/live/pointer.json", data)
    with pytest.raises(PointerCorrupt, match="a state of channel 'canary'"):
        world.store.read_pointer("live")


def test_a_pointer_to_a_missing_version_is_readable_and_reported(world: World) -> None:
    world.store.move_pointer("live", pointer_for("a" * 64), Token())
    pointer, _ = world.store.read_pointer("live")
    assert pointer is not None
    with pytest.raises(ObjectMissing, match="table_version a"):
        world.store.get(TableVersion, pointer.table_version)
    assert any("channel live" in line for line in problems(world.store))


def test_a_history_with_a_hole_is_read_up_to_it(world: World) -> None:
    versions = [world.store.put(make_version(number)) for number in range(3)]
    first = world.store.move_pointer("live", pointer_for(versions[0]), Token())
    for version in versions[1:]:
        pointer, token = world.store.read_pointer("live")
        assert pointer is not None
        world.store.move_pointer("live", after(pointer, token, version), token)
    world.place.remove(f"objects/pointer/{first}.json")
    states = world.store.history("live")
    assert [next(states).table_version, next(states).table_version] == versions[:0:-1]
    with pytest.raises(ObjectMissing, match=first):
        next(states)
