"""Writes of a folder store that fail, are cut short, or happen at once."""

import contextlib
import errno
import os
import pathlib
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tabletune.records.table import TableVersion
from tabletune.store import durable
from tabletune.store.base import Token
from tabletune.store.check import problems
from tabletune.store.durable import exclusive_lock
from tabletune.store.errors import (
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnwritable,
)
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import promote
from tests.small_disk import mounted
from tests.store.world import AT, World, after, make_version, pointer_for


def test_what_a_killed_writer_left_is_ignored_and_then_removed(folder_world: World) -> None:
    name = folder_world.store.put(make_version(0))
    leftovers = [
        folder_world.root / "objects" / "table_version" / ".tmp-0123",
        folder_world.root / ".tmp-0123",
    ]
    for path in leftovers:
        path.write_bytes(b'{"half')
    assert folder_world.store.list(TableVersion) == (name,)
    assert FolderStore(folder_world.root).get(TableVersion, name) == make_version(0)
    folder_world.store.put(make_version(1))
    assert not any(path.exists() for path in leftovers)


@pytest.mark.parametrize("step", ["state", "pointer"])
def test_a_crash_inside_a_move_leaves_the_old_pointer(
    folder_world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The process dies at the rename of the state's object, or at that of the pointer."""
    first, second = (folder_world.store.put(make_version(number)) for number in range(2))
    folder_world.store.move_pointer("live", pointer_for(first), Token())
    pointer, token = folder_world.store.read_pointer("live")
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
            folder_world.store.move_pointer("live", after(pointer, token, second), token)
    again = FolderStore(folder_world.root)
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
    folder_world: World,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    error: type[StoreError],
    advice: str,
) -> None:
    version, verdict = folder_world.candidate()
    promote(folder_world.store, "live", version, verdict, AT, "a test", "first")
    second, verdict = folder_world.candidate()
    before = folder_world.place.snapshot()

    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(durable.os, "fsync", fails)
        with pytest.raises(error, match=advice):
            promote(folder_world.store, "live", second, verdict, AT, "a test", "second")
        with pytest.raises(error, match=advice):
            folder_world.store.put(make_version(99))
    assert folder_world.place.snapshot() == before
    assert promote(folder_world.store, "live", second, verdict, AT, "a test", "second").moved


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A real file system of 64 KiB, where this user may mount one."""
    with mounted(tmp_path / "disk", 64) as mount:
        yield mount


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
    before = world.place.snapshot()
    with pytest.raises(StoreFull, match="free some space"):
        promote(world.store, "live", second, verdict, AT, "a test", "second")
    with pytest.raises(StoreFull, match="what was in force before still is"):
        world.store.put(make_version(99))
    assert world.place.snapshot() == before
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


def test_threads_share_a_store(folder_world: World) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(10):
                folder_world.store.put(make_version(step))
                folder_world.store.put(make_version(100 * number + step))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(folder_world.store.list(TableVersion)) == 40
    assert problems(folder_world.store) == []
