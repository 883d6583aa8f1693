"""Files come whole or not at all, with the permissions that each part gives its own."""

import os
import pathlib
import stat
from collections.abc import Callable, Iterator

import pytest

from tabletune.durable_file import TEMPORARY_PREFIX, open_to_read, sync_folder, write_durably
from tabletune.maintain.gpu_lock import gpu_lock
from tabletune.maintain.reaper import marked_run
from tabletune.maintain.watch_metrics import write_metrics
from tabletune.maintain.watch_state import WatchState, save_state
from tabletune.measure.environment_folder import FACTS_NAME, EnvironmentFolder
from tabletune.measure.installed_engine import InstalledEngine
from tabletune.pipeline.workspace import Workspace, WorkspaceError
from tabletune.store.errors import StoreError
from tabletune.store.folder import FolderStore
from tabletune.store.folder_source import FolderSource
from tests.store.world import FINGERPRINT


def mode_of(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


def test_a_mode_holds_whatever_the_umask(tmp_path: pathlib.Path, umask: int) -> None:
    write_durably(tmp_path / "ours", b"x")
    assert mode_of(tmp_path / "ours") == 0o666 & ~umask
    for mode in (0o600, 0o644, 0o640):
        write_durably(tmp_path / "ours", b"y", mode=mode)
        assert mode_of(tmp_path / "ours") == mode


def test_a_private_file_is_private_from_its_first_byte(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    fchmod = os.fchmod

    def watched(descriptor: int, mode: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        fchmod(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", watched)
    write_durably(tmp_path / "key", b"x", mode=0o600)
    assert len(seen) == 1
    assert seen[0] & 0o077 == 0


def test_folders_are_made_and_the_later_writer_wins(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    for data in (b"first", b"", b"\x00last"):
        write_durably(path, data)
        assert path.read_bytes() == data
    assert [p.name for p in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("step", ["fsync", "fchmod", "replace"])
def test_a_failure_leaves_what_was_there_and_nothing_else(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "file"
    write_durably(path, b"before")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails)
        with pytest.raises(OSError, match="No space left"):
            write_durably(path, b"after", mode=0o600)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.glob(f"{TEMPORARY_PREFIX}*")) == []


def test_a_folder_that_cannot_be_read_is_written_all_the_same(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a drop box is: its entries cannot be synced, which is no reason to fail."""
    opened = os.open

    def denied(path: object, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECTORY:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", denied)
    write_durably(tmp_path / "file", b"x")
    assert (tmp_path / "file").read_bytes() == b"x"
    sync_folder(tmp_path)


def workspace_record(folder: pathlib.Path) -> pathlib.Path:
    return Workspace(folder).save("a" * 64, FINGERPRINT)


def watch_state(folder: pathlib.Path) -> pathlib.Path:
    save_state(WatchState(), folder / "state.json")
    return folder / "state.json"


def metrics(folder: pathlib.Path) -> pathlib.Path:
    write_metrics("x 1\n", folder / "watch.prom")
    return folder / "watch.prom"


def environment_facts(folder: pathlib.Path) -> pathlib.Path:
    facts = InstalledEngine.model_validate_json(
        '{"name": "e", "requirement": null, "python": "/p", "owned": false, "distribution": "vllm",'
        '"version": "1", "python_version": "3.12", "torch_version": null, "tabletune_version": "1",'
        '"plugin_version": null, "plugin_source": null, "lock_sha256": null, "install_time_s": 0,'
        '"created": "2026-01-01T00:00:00Z"}'
    )
    EnvironmentFolder(folder, "e").write(facts)
    return folder / "e" / FACTS_NAME


@pytest.mark.parametrize(
    ("write", "mode"),
    [
        (workspace_record, 0o600),
        (watch_state, 0o600),
        (metrics, 0o644),
        (environment_facts, 0o644),
    ],
)
def test_each_part_keeps_the_permissions_of_its_files(
    tmp_path: pathlib.Path, umask: int, write: Callable[[pathlib.Path], pathlib.Path], mode: int
) -> None:
    assert mode_of(write(tmp_path / "there")) == mode


def test_what_all_users_of_a_host_share(tmp_path: pathlib.Path, umask: int) -> None:
    with marked_run("a test", tmp_path / "runs") as marker:
        assert mode_of(marker.path) == 0o600
    with gpu_lock(["GPU-1"], "a test", folder=tmp_path):
        (told,) = tmp_path.glob("*.json")
        assert mode_of(told) == 0o644


def test_a_store_follows_the_umask(tmp_path: pathlib.Path, umask: int) -> None:
    store = FolderStore(tmp_path / "store")
    name = store.put(FINGERPRINT)
    (path,) = (tmp_path / "store").rglob(f"{name}.json")
    assert mode_of(path) == 0o666 & ~umask


def test_a_pipe_in_place_of_a_file_is_told_and_not_waited_for(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a file"):
        open_to_read(path)
    with pytest.raises(IsADirectoryError):
        open_to_read(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_to_read(tmp_path / "nothing")
    (tmp_path / "file").write_bytes(b"there")
    with open_to_read(tmp_path / "file") as file:
        assert file.read() == b"there"


def test_no_reader_waits_for_a_pipe(tmp_path: pathlib.Path) -> None:
    store = FolderStore(tmp_path / "store")
    store.put(FINGERPRINT)
    pointer = store.root / "channels" / "live" / "pointer.json"
    pointer.parent.mkdir(parents=True)
    os.mkfifo(pointer)
    with pytest.raises(StoreError, match="not a file"):
        store.read_pointer("live")
    with pytest.raises(StoreError, match="not a file"):
        FolderSource(store.root).read("channels/live/pointer.json", 1000)
    workspace = Workspace(tmp_path / "work")
    path = workspace.save("a" * 64, FINGERPRINT)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(WorkspaceError, match="not a file"):
        workspace.load("a" * 64, type(FINGERPRINT))
