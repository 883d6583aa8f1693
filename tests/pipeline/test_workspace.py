"""The run's folder: atomic, locked, and clear about what is wrong with it."""

import multiprocessing
import os
import pathlib

import pytest

from tabletune.durable_file import TEMPORARY_PREFIX
from tabletune.pipeline.workspace import Workspace, WorkspaceError
from tabletune.records.table import Range, Table


def table(length: int = 2) -> Table:
    part = Range(first=1, last=4, draft_length=length)
    return Table(max_num_seqs=4, max_draft_length=3, ranges=(part,))


def test_a_record_is_found_again_by_fingerprint(tmp_path: pathlib.Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.save("a" * 64, table())
    assert workspace.load("a" * 64, Table) == table()
    assert workspace.load("b" * 64, Table) is None


def test_a_corrupted_record_is_left_in_place_and_named(tmp_path: pathlib.Path) -> None:
    workspace = Workspace(tmp_path)
    path = workspace.save("a" * 64, table())
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(WorkspaceError, match="delete the file to measure again"):
        workspace.load("a" * 64, Table)
    assert path.exists()


def test_a_full_disk_leaves_what_was_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path)
    workspace.save("a" * 64, table(1))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError, match="No space left on device"):
        workspace.save("a" * 64, table(2))
    monkeypatch.undo()
    assert workspace.load("a" * 64, Table) == table(1)
    leftovers = [p for p in tmp_path.rglob("*") if p.name.startswith(TEMPORARY_PREFIX)]
    assert leftovers == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="cannot be made"):
        Workspace(tmp_path / "file" / "out")


def _hold(root: str, held: "multiprocessing.synchronize.Event", done: object) -> None:
    with Workspace(pathlib.Path(root)).locked():
        held.set()
        done.wait(30)  # type: ignore[attr-defined]


def test_of_two_runs_in_one_folder_the_second_is_told(tmp_path: pathlib.Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path), held, done))
    other.start()
    try:
        assert held.wait(30)
        with pytest.raises(WorkspaceError, match="another run"), Workspace(tmp_path).locked():
            pass
    finally:
        done.set()
        other.join(30)
    with Workspace(tmp_path).locked():
        pass
