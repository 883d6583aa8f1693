"""`tabletune prune`: says what would go, and removes it only when told to."""

import datetime
import json
import pathlib

import pytest

from tabletune.commands.app import run_command
from tabletune.records.table import TableVersion
from tabletune.store.folder import FolderStore
from tests.maintain.scenes import version
from tests.store.world import FINGERPRINT


@pytest.fixture
def store(tmp_path: pathlib.Path) -> FolderStore:
    """A store with one old version that was never in force."""
    opened = FolderStore(tmp_path / "out" / "store")
    opened.put(FINGERPRINT)
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=50)
    opened.put(version().model_copy(update={"created_at": long_ago.isoformat()}))
    return opened


def run(store: FolderStore, *options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run_command(["prune", "--out", str(store.root.parent), *options])
    return int(ended.value.code or 0)


def test_it_changes_nothing_unless_told(
    store: FolderStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(store) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "to remove: 1 of table_version; kept: 0"
    assert "--apply" in out[1]
    assert len(store.list(TableVersion)) == 1


def test_applied_it_names_what_went(store: FolderStore, capsys: pytest.CaptureFixture[str]) -> None:
    (name,) = store.list(TableVersion)
    assert run(store, "--apply", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["records"] == [{"kind": "table_version", "name": name}]
    assert (told["applied"], told["removed"]) == (True, 1)
    assert store.list(TableVersion) == ()


def test_longer_limits_keep_it(store: FolderStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(store, "--young-days", "60", "--apply") == 0
    assert "to remove" not in capsys.readouterr().out
    assert len(store.list(TableVersion)) == 1


def test_a_limit_that_would_catch_runs_is_refused(
    store: FolderStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(store, "--young-days", "0.1") == 2
    assert (
        "--young-days: expected a number greater than or equal to 1, found 0.1"
        in capsys.readouterr().err
    )
