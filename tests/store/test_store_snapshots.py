"""Snapshots in a folder: found, read, and one damaged one hides no other."""

import pathlib

import pytest

from tabletune.records.base import RecordError
from tabletune.records.snapshot import MAX_SNAPSHOT_BYTES, LiveSnapshot
from tabletune.store.errors import BadName, NotAStore, ObjectMissing
from tabletune.store.folder_source import FolderSource
from tabletune.store.layout import MARKER, MARKER_KEY, live_key
from tabletune.store.snapshots import FolderSnapshots, read_all

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "live_snapshot.v1.json"
RUN_ID = "3f2a-1"


def told(root: pathlib.Path, run_id: str, data: bytes) -> None:
    FolderSource(root).write(live_key("live", run_id), data)


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / MARKER_KEY).write_bytes(MARKER)
    return tmp_path


def test_what_engines_told_is_found(root: pathlib.Path) -> None:
    snapshot = LiveSnapshot.from_json(GOLDEN.read_bytes())
    engine = snapshot.engine.model_copy(update={"run_id": "other"})
    other = snapshot.model_copy(update={"engine": engine})
    told(root, RUN_ID, snapshot.to_json())
    told(root, "other", other.to_json())
    told(root, "other", other.to_json())  # takes the place of the one before
    reader = FolderSnapshots(root)
    assert reader.list_snapshots("live") == (RUN_ID, "other")
    assert reader.list_snapshots("canary") == ()
    assert reader.read_snapshot("live", "other") == other
    assert read_all(reader, "live").readable == {RUN_ID: snapshot, "other": other}


def test_damage_is_told_and_hides_nothing(root: pathlib.Path) -> None:
    data = GOLDEN.read_bytes()
    told(root, RUN_ID, data)
    told(root, "half", data[: len(data) // 2])
    told(root, "renamed", data)
    told(root, "huge", b" " * (MAX_SNAPSHOT_BYTES + 1))
    (root / "live" / "live" / ".tmp-1").write_bytes(b"")
    (root / "live" / "live" / "notes.txt").write_bytes(b"")
    found = read_all(FolderSnapshots(root), "live")
    assert list(found.readable) == [RUN_ID]
    assert found.damaged.keys() == {"half", "renamed", "huge"}
    assert "not of ('live', 'renamed')" in found.damaged["renamed"]
    with pytest.raises(RecordError, match="not strict JSON"):
        FolderSnapshots(root).read_snapshot("live", "half")


def test_names_and_absence(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    reader = FolderSnapshots(root)
    with pytest.raises(ObjectMissing):
        reader.read_snapshot("live", "nobody")
    with pytest.raises(BadName):
        reader.read_snapshot("live", "../pointer")
    with pytest.raises(BadName):
        reader.list_snapshots("..")
    with pytest.raises(NotAStore):
        told(tmp_path / "nowhere", RUN_ID, b"{}")
