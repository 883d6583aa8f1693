"""diff: each change once."""

import pathlib

import pytest

from tabletune.commands.tables import diff
from tabletune.records.diff import version_diff_words
from tabletune.store.folder import FolderStore
from tests.records.test_record_diff import plan, table, version


def test_each_change_is_told_once(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = FolderStore(tmp_path / "store")
    old = version(table(3, 3, 0, 0), plan((1, 2, 4), (0, 3)))
    new = version(table(3, 1, 0, 0), plan((1, 2, 4), (0, 1, 3)))
    names = [store.put(record) for record in (old, new)]
    diff(names[0], names[1], out=tmp_path)
    assert capsys.readouterr().out.splitlines() == version_diff_words(old, new)
    diff(names[0], names[0], out=tmp_path)
    assert capsys.readouterr().out == "no difference\n"
