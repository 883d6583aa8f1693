"""A run whose engines' log, or whose own folder, is on a disk that gets full."""

import json
import pathlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from command_process import CommandProcess
from deployment import Deployment, wait_until

from tabletune.commands.exit_codes import ExitCode
from tests.small_disk import mounted


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A real file system of 4 MiB, where this user may mount one."""
    with mounted(tmp_path / "disk", 4096) as mount:
        yield mount


def fill(disk: pathlib.Path) -> pathlib.Path:
    """Write to a file until the disk is full; the file."""
    path = disk / "filler"
    with path.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return path


def logs_on(disk: pathlib.Path, finished: Deployment, folder: pathlib.Path) -> Deployment:
    """The deployment without its profile, with its logs on the disk."""
    again = finished.copy(folder, without=("profile", "verdict"))
    logs = again.out / "logs"
    for path in logs.iterdir():
        path.unlink()
    logs.rmdir()
    logs.symlink_to(disk)
    return again


def test_a_run_goes_on_when_the_log_of_its_engine_is_full(
    finished: Deployment, tmp_path: pathlib.Path, disk: pathlib.Path
) -> None:
    again = logs_on(disk, finished, tmp_path)
    with again.start("profile", "--json") as process:
        process.wait_for("profile …")
        fill(disk)
        assert process.finish() == ExitCode.OK, process.errors
    assert "cells are kept" not in process.errors  # no engine died of it
    statuses = {cell["status"] for cell in json.loads(again.record("profile").read_text())["cells"]}
    assert statuses == {"measured"}


def refused(process: CommandProcess) -> str:
    """The one thing that such a run says."""
    assert process.process.returncode == ExitCode.ENGINE, process.errors
    error = process.json["error"]
    assert (error["kind"], error["exit_status"]) == ("NoRoomForLog", ExitCode.ENGINE)
    assert "Traceback" not in process.errors
    return str(error["message"])


def test_no_engine_is_started_whose_log_has_no_room(
    finished: Deployment, tmp_path: pathlib.Path, disk: pathlib.Path
) -> None:
    again = logs_on(disk, finished, tmp_path)
    filler = fill(disk)
    message = refused(again.run("profile", "--json"))
    assert "expected room for the engine's log at" in message
    assert "No space left on device" in message
    assert again.engine.boots() == []
    filler.unlink()
    assert again.run("profile", "--json").process.returncode == ExitCode.OK


def test_settings_are_not_blamed_for_a_full_disk(
    deployment: Deployment, disk: pathlib.Path
) -> None:
    """A first run: it qualifies, and another graph mode would not help."""
    (deployment.out / "logs").parent.mkdir()
    (deployment.out / "logs").symlink_to(disk)
    fill(disk)
    assert "free some space" in refused(deployment.run("run", "--json"))
    assert deployment.engine.boots() == []
    assert not list(deployment.out.glob("records/*/qualification*.json"))


def test_finished_cells_outlive_a_full_folder(
    finished: Deployment, tmp_path: pathlib.Path, disk: pathlib.Path
) -> None:
    """Records and logs on one disk; the profile goes on from its cells once there is room."""
    made = finished.copy(tmp_path / "made", without=("profile", "verdict"))
    for path in made.out.glob("reports/*"):
        for file in path.iterdir():
            file.unlink()
    again = replace(made.copy(disk), folder=tmp_path)

    def cells() -> int:
        parts = list(again.out.glob("records/*/profile-partial.json"))
        return len(json.loads(parts[0].read_text())["cells"]) if parts else 0

    with again.start("profile", "--json") as process:
        wait_until(lambda: cells() > 1)
        filler = fill(disk)
        status = process.finish()
    assert status == ExitCode.STORE, process.errors
    assert process.json["error"]["kind"] == "WorkspaceError"
    assert "free space or choose another --out" in process.json["error"]["message"]
    assert again.engine.living() == []
    kept = cells()
    assert kept > 1
    filler.unlink()
    ended = again.run("profile", "--json")
    assert ended.process.returncode == ExitCode.OK, ended.errors
    assert f"going on from {kept} cells of an unfinished profile" in ended.errors
