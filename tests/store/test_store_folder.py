"""The folder store: content addresses, pointers, damage, foreign folders, full disks."""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tabletune.records.base import Record, RecordError
from tabletune.records.pointer import Pointer
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store import durable
from tabletune.store.base import Store, Token
from tabletune.store.check import problems
from tabletune.store.durable import exclusive_lock
from tabletune.store.errors import (
    BadName,
    LostRace,
    NotAStore,
    ObjectCorrupt,
    ObjectMissing,
    PointerCorrupt,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnwritable,
)
from tabletune.store.folder import MARKER, FolderStore
from tabletune.store.promotion import promote
from tests.records import strategies
from tests.store.world import AT, FINGERPRINT, World, make_version, snapshot


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path / "store")


def pointer_for(version: str, channel: str = "live", **changes: Any) -> Pointer:
    fields: dict[str, Any] = {
        "channel": channel,
        "sequence": 1,
        "table_version": version,
        "fingerprint": FINGERPRINT.identity,
        "action": "force",
        "moved_at": AT,
        "moved_by": "a test",
        "reason": "a test",
    }
    return Pointer(**(fields | changes))


def after(pointer: Pointer, token: Token, version: str, **changes: Any) -> Pointer:
    return pointer_for(
        version,
        pointer.channel,
        sequence=pointer.sequence + 1,
        previous_version=pointer.table_version,
        previous_pointer=token.state,
        **changes,
    )


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


def test_the_layout_is_as_documented(world: World) -> None:
    version = world.store.put(make_version(1))
    state = world.store.move_pointer("live", pointer_for(version), Token())
    files = snapshot(world.root)
    assert sorted(files) == sorted(
        [
            "store.json",
            "channels/live/pointer.json",
            f"objects/fingerprint/{FINGERPRINT.content_hash}.json",
            f"objects/pointer/{state}.json",
            f"objects/table_version/{version}.json",
        ]
    )
    assert json.loads(files["store.json"]) == {"store": "tabletune", "format_version": 1}
    assert files["channels/live/pointer.json"] == files[f"objects/pointer/{state}.json"]


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


@pytest.mark.parametrize("channel", ["", "..", "../live", "Live", "a/b", "a" * 64, "live\n", "/x"])
def test_a_channel_that_is_no_name_is_never_a_path(world: World, channel: str) -> None:
    before = snapshot(world.root)
    with pytest.raises(BadName, match="channel name"):
        world.store.read_pointer(channel)
    with pytest.raises(BadName, match="channel name"):
        world.store.move_pointer(channel, pointer_for("a" * 64), Token())
    assert snapshot(world.root) == before


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
    before = snapshot(world.root)
    with pytest.raises(LostRace) as caught:
        world.store.move_pointer("live", pointer_for(second), Token())
    assert caught.value.winner is not None
    assert caught.value.winner.table_version == first
    assert "put in force by nightly" in str(caught.value)
    assert "nothing was changed" in str(caught.value)
    assert snapshot(world.root) == before


def test_a_pointer_that_vanished_is_a_lost_race_too(world: World) -> None:
    version = world.store.put(make_version(0))
    world.store.move_pointer("live", pointer_for(version), Token())
    pointer, token = world.store.read_pointer("live")
    assert pointer is not None
    (world.root / "channels/live/pointer.json").unlink()
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
    before = snapshot(world.root)
    wrong = after(pointer, token, version).model_copy(update=changes)
    with pytest.raises(StoreError, match="make the new pointer from the one that was read"):
        world.store.move_pointer("live", wrong, token)
    with pytest.raises(StoreError, match="make the new pointer"):
        world.store.move_pointer("canary", pointer_for(version, "live"), Token())
    assert snapshot(world.root) == before


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
    path = world.root / "channels/live/pointer.json"
    path.write_bytes(data)
    with pytest.raises(PointerCorrupt, match=reason) as caught:
        world.store.read_pointer("live")
    assert "table versions themselves are untouched" in str(caught.value)
    with pytest.raises(PointerCorrupt):
        world.store.move_pointer("live", pointer_for(version), Token(state, state))
    assert path.read_bytes() == data
    # The advice works: the state that was last in force is still there to copy.
    path.write_bytes((world.root / "objects" / "pointer" / f"{state}.json").read_bytes())
    assert world.store.read_pointer("live")[1].state == state


def test_a_state_of_another_channel_is_no_state_of_this_one(world: World) -> None:
    version = world.store.put(make_version(0))
    world.store.move_pointer("canary", pointer_for(version, "canary"), Token())
    live = world.root / "channels" / "live"
    live.mkdir()
    (live / "pointer.json").write_bytes((world.root / "channels/canary/pointer.json").read_bytes())
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
    (world.root / "objects" / "pointer" / f"{first}.json").unlink()
    states = world.store.history("live")
    assert [next(states).table_version, next(states).table_version] == versions[:0:-1]
    with pytest.raises(ObjectMissing, match=first):
        next(states)


def test_what_a_killed_writer_left_is_ignored_and_then_removed(world: World) -> None:
    name = world.store.put(make_version(0))
    leftovers = [
        world.root / "objects" / "table_version" / ".tmp-0123",
        world.root / ".tmp-0123",
    ]
    for path in leftovers:
        path.write_bytes(b'{"half')
    assert world.store.list(TableVersion) == (name,)
    assert FolderStore(world.root).get(TableVersion, name) == make_version(0)
    world.store.put(make_version(1))
    assert not any(path.exists() for path in leftovers)


def test_foreign_files_inside_are_ignored(world: World) -> None:
    name = world.store.put(make_version(0))
    (world.root / "objects/table_version/README.md").write_text("hello")
    (world.root / "objects/table_version/abc.json").write_text("{}")
    (world.root / "channels").mkdir()
    (world.root / "channels/Not A Channel").mkdir()
    (world.root / "channels/empty").mkdir()
    assert world.store.list(TableVersion) == (name,)
    assert world.store.channels() == ()


@pytest.mark.parametrize("step", ["state", "pointer"])
def test_a_crash_inside_a_move_leaves_the_old_pointer(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The process dies at the rename of the state's object, or at that of the pointer."""
    first, second = (world.store.put(make_version(number)) for number in range(2))
    world.store.move_pointer("live", pointer_for(first), Token())
    pointer, token = world.store.read_pointer("live")
    assert pointer is not None
    replace = os.replace
    calls: list[str] = []

    def dies(source: pathlib.Path, target: pathlib.Path) -> None:
        calls.append(str(target))
        if len(calls) == (1 if step == "state" else 2):
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(durable.os, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            world.store.move_pointer("live", after(pointer, token, second), token)
    again = FolderStore(world.root)
    assert again.read_pointer("live") == (pointer, token)
    again.move_pointer("live", after(pointer, token, second), token)
    assert [state.table_version for state in again.history("live")] == [second, first]
    assert problems(again) == []


@pytest.mark.parametrize(
    ("number", "error", "advice"),
    [
        (errno.ENOSPC, StoreFull, "free some space"),
        (errno.EDQUOT, StoreFull, "free some space"),
        (errno.EROFS, StoreUnwritable, "give this user permission"),
        (errno.EACCES, StoreUnwritable, "give this user permission"),
        (errno.EIO, StoreError, "look at the disk"),
    ],
)
def test_a_write_that_fails_is_explained_and_loses_nothing(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    error: type[StoreError],
    advice: str,
) -> None:
    version, verdict = world.candidate()
    promote(world.store, "live", version, verdict, AT, "a test", "first")
    second, verdict = world.candidate()
    before = snapshot(world.root)

    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(durable.os, "fsync", fails)
        with pytest.raises(error, match=advice):
            promote(world.store, "live", second, verdict, AT, "a test", "second")
        with pytest.raises(error, match=advice):
            world.store.put(make_version(99))
    assert snapshot(world.root) == before
    assert promote(world.store, "live", second, verdict, AT, "a test", "second").moved


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A real file system of 64 KiB, where this user may mount one."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip("this user may not mount a file system")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def fill(path: pathlib.Path) -> None:
    """Write to a file until its disk is full."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(descriptor, b"x" * 4096)
    os.close(descriptor)


def test_a_full_disk_loses_nothing(small_disk: pathlib.Path) -> None:
    world = World(small_disk)
    version, verdict = world.candidate()
    promote(world.store, "live", version, verdict, AT, "a test", "first")
    second, verdict = world.candidate()
    fill(small_disk / ".filler")
    before = snapshot(small_disk)
    with pytest.raises(StoreFull, match="free some space"):
        promote(world.store, "live", second, verdict, AT, "a test", "second")
    with pytest.raises(StoreFull, match="what was in force before still is"):
        world.store.put(make_version(99))
    assert snapshot(small_disk) == before
    (small_disk / ".filler").unlink()
    assert promote(world.store, "live", second, verdict, AT, "a test", "second").moved
    assert problems(world.store) == []


def test_a_read_only_store_is_read_and_refuses_writes(small_disk: pathlib.Path) -> None:
    world = World(small_disk)
    version, verdict = world.candidate()
    promote(world.store, "live", version, verdict, AT, "a test", "first")
    second, verdict = world.candidate()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    store = FolderStore(small_disk)
    pointer, _ = store.read_pointer("live")
    assert pointer is not None
    assert store.get(TableVersion, pointer.table_version)
    assert store.put(make_version(0)) == version  # what is there needs no write
    with pytest.raises(StoreUnwritable, match="Read-only file system"):
        promote(store, "live", second, verdict, AT, "a test", "second")


def test_a_missing_or_empty_folder_is_an_empty_store(tmp_path: pathlib.Path) -> None:
    for root in (tmp_path / "deep" / "er", tmp_path):
        store = FolderStore(root)
        assert store.read_pointer("live") == (None, Token())
        assert store.list(Verdict) == ()
    assert list(tmp_path.iterdir()) == []  # reading makes nothing


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        ({"notes.txt": b"hello"}, "name an empty or a new folder"),
        ({"objects": None}, "put .* into its store.json"),
        ({"store.json": b"{}"}, "restore the marker"),
        ({"store.json": b"[" * 3000}, "restore the marker"),
        ({"store.json": b'{"store": "tabletune", "format_version": true}'}, "restore the marker"),
        ({"store.json": b'{"store": "tabletune", "format_version": 2}'}, "upgrade tabletune"),
    ],
)
def test_a_folder_with_other_things_is_refused_untouched(
    tmp_path: pathlib.Path, content: dict[str, bytes | None], advice: str
) -> None:
    for name, data in content.items():
        if data is None:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_bytes(data)
    with pytest.raises(NotAStore, match=advice):
        FolderStore(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(content)


def test_a_folder_that_fills_up_after_opening_is_refused(tmp_path: pathlib.Path) -> None:
    store = FolderStore(tmp_path)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(NotAStore, match=r"thesis\.tex"):
        store.put(FINGERPRINT)


def test_a_file_is_no_store(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    path.write_text("hello")
    with pytest.raises(NotAStore, match="found a file"):
        FolderStore(path)
    with pytest.raises(StoreError):
        FolderStore(path / "below").put(FINGERPRINT)


def test_the_marker_is_stable() -> None:
    assert MARKER == b'{"store": "tabletune", "format_version": 1}\n'


def test_a_lock_that_is_held_for_too_long_is_reported(tmp_path: pathlib.Path) -> None:
    waits: list[float] = []
    with (
        exclusive_lock(tmp_path / ".lock", 1.0),
        pytest.raises(StoreBusy, match=r"within 0\.1 s"),
        exclusive_lock(tmp_path / ".lock", 0.1, sleep=waits.append, interval_s=0.05),
    ):
        pytest.fail("two held it at once")
    assert waits == [0.05, 0.05]
    with exclusive_lock(tmp_path / ".lock", 0.0):
        pass


def test_threads_share_a_store(world: World) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(10):
                world.store.put(make_version(step))
                world.store.put(make_version(100 * number + step))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(world.store.list(TableVersion)) == 40
    assert problems(world.store) == []
