"""The whole pipeline by its command line, on a stand-in engine with real processes and HTTP."""

import pathlib

import pytest
from deployment import Deployment

from tabletune.commands.exit_codes import ExitCode
from tabletune.records.step_profile import Profile


def test_a_run_measures_validates_and_promotes(finished: Deployment) -> None:
    shown = finished.ask("show", "--json")
    assert shown.process.returncode == ExitCode.OK, shown.errors
    assert [v["passed"] for v in shown.json["verdicts"]] == [True]
    assert shown.json["table"][0][0] == 1
    assert shown.json["table"][-1][1] == 4
    reports = list(finished.out.glob("reports/*/report.html"))
    assert [path.parent.name for path in reports] == [shown.json["table_version"][:12]]
    assert finished.engine.living() == []


def test_a_second_run_boots_no_engine(finished: Deployment, tmp_path: pathlib.Path) -> None:
    again = finished.copy(tmp_path)
    ended = again.run("run", "--json")
    assert ended.process.returncode == ExitCode.OK, ended.errors
    assert ended.json["promoted"] == {"channel": "live", "moved": False, "sequence": 1}
    assert again.engine.boots() == []
    for what in ("qualification", "acceptance", "profile", "passing verdict"):
        assert f"{what} of " in ended.errors


def test_a_run_is_repeated_from_anywhere_with_options_changed(
    finished: Deployment, tmp_path: pathlib.Path
) -> None:
    """Only --out names it; an option that is given takes the place of the former one."""
    again = finished.copy(tmp_path)
    ended = again.ask("run", "--no-promote", "--json")
    assert ended.process.returncode == ExitCode.OK, ended.errors
    assert again.engine.boots() == []
    refused = again.ask("run", "--concurrency", "9")
    assert refused.process.returncode == ExitCode.USAGE
    assert "--concurrency: expected numbers within 1 … 4, found [9]" in refused.errors


def test_cells_that_noise_made_unusable_are_measured_again(
    finished: Deployment, tmp_path: pathlib.Path
) -> None:
    """A profile without a usable cell at some batch size ends one run, not all that follow."""
    noisy = finished.copy(tmp_path)
    path = noisy.record("profile")
    profile = Profile.from_json(path.read_bytes())
    unusable = {"status": "rejected", "problem": "interval of ±25 %"}
    cells = tuple(
        cell.model_copy(update=unusable if cell.batch_size > 1 else {}) for cell in profile.cells
    )
    path.write_bytes(profile.model_copy(update={"cells": cells}).to_json())
    ended = noisy.ask("run", "--json")
    assert ended.process.returncode == ExitCode.MEASUREMENT, ended.errors
    assert ended.json["error"]["kind"] == "NoTableError"
    assert not path.exists()
    assert noisy.engine.boots() == []
    again = noisy.run("run", "--json")
    assert again.process.returncode == ExitCode.OK, again.errors
    assert f"going on from {len(cells)} cells of an unfinished profile" in again.errors
    assert noisy.record("profile") == path


def test_a_failed_verdict_promotes_nothing(finished: Deployment, tmp_path: pathlib.Path) -> None:
    """And where the profile has gaps, the next run fills them."""
    slow = finished.copy(tmp_path)
    before = slow.pointer()
    path = slow.record("profile")
    profile = Profile.from_json(path.read_bytes())
    cells = tuple(cell for cell in profile.cells if cell.batch_size != 1)
    path.write_bytes(profile.model_copy(update={"cells": cells}).to_json())
    ended = slow.run("run", "--revalidate", "--json", environment={"FAKE_ENGINE_SLOW_TABLE": "2.0"})
    assert ended.process.returncode == ExitCode.VERDICT_FAILED, ended.errors
    assert ended.json["verdict"]["passed"] is False
    assert ended.json["promoted"] is None
    assert pathlib.Path(ended.json["report"]).is_file()
    assert slow.pointer() == before
    assert slow.engine.living() == []
    version = ended.json["table_version"]
    refused = slow.ask("promote", version, "--channel", "canary", "--json")
    assert refused.process.returncode == ExitCode.STORE
    assert "the verdict failed" in refused.json["error"]["message"]
    assert not path.exists()
    again = slow.run("profile", "--json")
    assert f"going on from {len(cells)} cells of an unfinished profile" in again.errors
    filled = Profile.from_json(slow.record("profile").read_bytes())
    assert {cell.batch_size for cell in filled.cells} == {c.batch_size for c in profile.cells}


@pytest.mark.parametrize("name", ["build", "show", "diff", "rollback", "promote"])
def test_commands_after_a_run(finished: Deployment, tmp_path: pathlib.Path, name: str) -> None:
    after = finished.copy(tmp_path)
    version = after.ask("show", "--json").json["table_version"]
    arguments = {
        "build": ["build"],
        "show": ["show", version[:8]],
        "diff": ["diff", "live", version],
        "rollback": ["rollback"],
        "promote": ["promote", version, "--channel", "canary"],
    }[name]
    ended = after.ask(*arguments, "--json")
    if name == "rollback":
        assert ended.process.returncode == ExitCode.STORE
        assert "has nothing before it" in ended.json["error"]["message"]
        return
    assert ended.process.returncode == ExitCode.OK, ended.errors
    if name == "build":
        assert ended.json["table_version"] == version
    if name == "show":
        serve = ended.json["serve"]
        source = f"TABLETUNE_SOURCE={(after.out / 'store').as_uri()}"
        assert source in serve["with_plugin"]
        assert "TABLETUNE" not in serve["without_plugin"]
    if name == "diff":
        assert ended.json["rows"] == []
    if name == "promote":
        assert ended.json["moved"]
