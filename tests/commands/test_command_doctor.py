"""doctor looks, and leaves everything as it is."""

import pathlib

from called import call

from tabletune.commands.exit_codes import ExitCode


def test_it_makes_no_folders(tmp_path: pathlib.Path) -> None:
    places = ("--out", str(tmp_path / "out"), "--root", str(tmp_path / "engines"))
    for store in ((), ("--store", str(tmp_path / "store"))):
        ended = call("doctor", *places, *store, "--json")
        assert ended.status == ExitCode.UNEXPECTED  # there is no engine environment
        states = {finding["subject"]: finding["state"] for finding in ended.json}
        assert states["run folder"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_run_folder_that_is_there_is_tried(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    found = {f["subject"]: f["found"] for f in call("doctor", "--out", str(out), "--json").json}
    assert found["run folder"] == f"{out} can be written"
    assert list(out.iterdir()) == []
