"""What a folder store makes of the folder that it is given."""

import json
import pathlib

import pytest

from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store.base import Token
from tabletune.store.errors import (
    NotAStore,
    StoreError,
)
from tabletune.store.folder import MARKER, FolderStore
from tests.store.world import FINGERPRINT, World, make_version, pointer_for


def test_the_layout_is_as_documented(folder_world: World) -> None:
    version = folder_world.store.put(make_version(1))
    state = folder_world.store.move_pointer("live", pointer_for(version), Token())
    files = folder_world.place.snapshot()
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


def test_foreign_files_inside_are_ignored(folder_world: World) -> None:
    name = folder_world.store.put(make_version(0))
    (folder_world.root / "objects/table_version/README.md").write_text("hello")
    (folder_world.root / "objects/table_version/abc.json").write_text("{}")
    (folder_world.root / "channels").mkdir()
    (folder_world.root / "channels/Not A Channel").mkdir()
    (folder_world.root / "channels/empty").mkdir()
    assert folder_world.store.list(TableVersion) == (name,)
    assert folder_world.store.channels() == ()


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
