"""The cache on local disk: bounded, atomic, never in the way."""

import os
import pathlib
from collections.abc import Iterator

import pytest

from tabletune_vllm.source import Unreachable, cache
from tabletune_vllm.source.cache import MAX_FOLDERS, VersionCache
from tests.plugin.source.following import Channel, given
from tests.small_disk import mounted


def files(folder: pathlib.Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_only_the_last_good_version_is_kept(
    folder_channel: Channel, tmp_path: pathlib.Path
) -> None:
    follower = folder_channel.follower(cache=tmp_path / "c")
    for turn in range(4):
        folder_channel.promote()
        given(follower.poll(100.0 * turn))
    (folder,) = (tmp_path / "c").iterdir()
    kinds = [name.split("/")[1] for name in files(folder) if name.startswith("objects/")]
    expected = ["acceptance_prior", "fingerprint", "pointer", "profile", "qualification"]
    assert kinds == [*expected, "table_version"]


def test_what_would_be_too_large_is_kept_without_its_evidence(
    folder_channel: Channel, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = folder_channel.promote()
    monkeypatch.setattr(cache, "MAX_BYTES", 3500)
    given(folder_channel.follower(cache=tmp_path / "c").poll(0.0))
    (folder,) = (tmp_path / "c").iterdir()
    assert sum((folder / f).stat().st_size for f in files(folder)) <= 3500 + 500
    (tmp_path / "store").rename(tmp_path / "away")
    new = given(folder_channel.follower(cache=tmp_path / "c").poll(0.0))
    assert (new.name, new.profile) == (name, None)
    assert any("its profile is not there" in note for note in new.notes)


def test_folders_of_engines_long_gone_are_removed(
    folder_channel: Channel, tmp_path: pathlib.Path
) -> None:
    folder_channel.promote()
    (tmp_path / "c" / "mine").mkdir(parents=True)
    for number in range(MAX_FOLDERS + 3):
        kept = VersionCache(
            tmp_path / "c", folder_channel.store.url, f"c{number}", folder_channel.engine()
        )
        kept.save(b"{}", {})
        assert kept.problem == ""
    folders = [p.name for p in (tmp_path / "c").iterdir()]
    assert len(folders) == MAX_FOLDERS + 1
    assert "mine" in folders  # what is not ours is not touched


def test_other_engines_have_other_folders(folder_channel: Channel, tmp_path: pathlib.Path) -> None:
    folder_channel.promote()
    given(folder_channel.follower(cache=tmp_path / "c").poll(0.0))
    (tmp_path / "store").rename(tmp_path / "away")
    other = folder_channel.engine(vllm_version="0.33.0")
    follower = folder_channel.follower(cache=tmp_path / "c", engine=other)
    assert isinstance(follower.poll(0.0), Unreachable)


@pytest.mark.parametrize("kind", ["table_version", "pointer", "fingerprint"])
def test_a_damaged_cache_is_not_used(
    folder_channel: Channel, tmp_path: pathlib.Path, kind: str
) -> None:
    folder_channel.promote()
    given(folder_channel.follower(cache=tmp_path / "c").poll(0.0))
    for path in (tmp_path / "c").rglob(f"objects/{kind}/*.json"):
        path.write_bytes(path.read_bytes()[:-2])
    (tmp_path / "store").rename(tmp_path / "away")
    follower = folder_channel.follower(cache=tmp_path / "c")
    assert isinstance(follower.poll(0.0), Unreachable)
    assert "holds nothing that can be used" in str(follower.status()["cache_problem"])


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A real file system of 16 KiB, where this user may mount one."""
    with mounted(tmp_path / "disk", 16) as mount:
        yield mount


def test_a_full_disk_costs_the_cache_and_nothing_else(
    folder_channel: Channel, small_disk: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    first = folder_channel.promote()
    follower = folder_channel.follower(cache=small_disk)
    assert given(follower.poll(0.0)).name == first
    assert "No space left" in str(follower.status()["cache_problem"])
    second = folder_channel.promote()
    assert given(follower.poll(100.0)).name == second
    # What lies there is not half a version: it is not used, or whole.
    (tmp_path / "store").rename(tmp_path / "away")
    assert isinstance(folder_channel.follower(cache=small_disk).poll(0.0), Unreachable)


def test_a_full_disk_keeps_the_version_of_before(
    folder_channel: Channel, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = folder_channel.promote()
    given(folder_channel.follower(cache=tmp_path / "c").poll(0.0))
    folder_channel.promote()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    follower = folder_channel.follower(cache=tmp_path / "c")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        given(follower.poll(0.0))
    assert "No space left" in str(follower.status()["cache_problem"])
    (tmp_path / "store").rename(tmp_path / "away")
    new = given(folder_channel.follower(cache=tmp_path / "c").poll(0.0))
    assert (new.name, new.from_cache) == (first, True)


def test_a_cache_that_is_a_file_is_said(folder_channel: Channel, tmp_path: pathlib.Path) -> None:
    folder_channel.promote()
    (tmp_path / "c").write_text("a file")
    follower = folder_channel.follower(cache=tmp_path / "c")
    given(follower.poll(0.0))
    assert "cannot be written" in str(follower.status()["cache_problem"])


def test_engines_of_one_kind_share_a_folder(
    folder_channel: Channel, tmp_path: pathlib.Path
) -> None:
    followers = [folder_channel.follower(cache=tmp_path / "c") for _ in range(2)]
    for turn in range(3):
        name = folder_channel.promote()
        assert [given(f.poll(100.0 * turn)).name for f in followers] == [name, name]
    assert [f.status()["cache_problem"] for f in followers] == ["", ""]
    (tmp_path / "store").rename(tmp_path / "away")
    for _ in range(2):
        assert given(folder_channel.follower(cache=tmp_path / "c").poll(0.0)).name == name
