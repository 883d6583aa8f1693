"""doctor looks, and leaves everything as it is."""

import compileall
import pathlib

from called import call

from tabletune.commands.exit_codes import ExitCode
from tests.pipeline.fake_environment import make_environment


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


def test_packages_that_each_boot_compiles_again(tmp_path: pathlib.Path) -> None:
    environment = make_environment(tmp_path / "environment")
    root = ("--root", str(tmp_path / "engines"))
    made = call("engine", "create", "--python", str(environment.python), *root, "--json")
    assert made.status == ExitCode.OK

    def told() -> list[str]:
        ended = call("doctor", "--out", str(tmp_path / "out"), *root, "--json")
        return [f["advice"] for f in ended.json if "bytecode" in f["found"]]

    site = tmp_path / "environment" / "site"
    assert told() == [f"once: {environment.python} -m compileall -q {site}"]
    compileall.compile_dir(site, quiet=1)
    assert told() == []
