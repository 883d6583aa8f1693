"""The parts of `make test`: in order, the first failure ends it, the times are always told."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "infra" / "run_parts.py"
PARTS = ("setup=the environment", "check=style", "tests=all tests")


def run_parts(
    folder: pathlib.Path, failing: str, status: int
) -> "subprocess.CompletedProcess[str]":
    make = folder / "make"
    make.write_text(
        f'#!/bin/sh\necho "$2" >> "{folder}/targets"\n'
        f'if [ "$2" = "{failing}" ]; then exit {status}; fi\n'
    )
    make.chmod(0o755)
    return subprocess.run(
        [sys.executable, str(PROGRAM), *PARTS],
        env={**os.environ, "MAKE": str(make)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_run_in_order(tmp_path: pathlib.Path) -> None:
    done = run_parts(tmp_path, "none", 1)
    assert done.returncode == 0
    assert (tmp_path / "targets").read_text().split() == ["setup", "check", "tests"]
    assert "== 2 of 3: style (make check)" in done.stdout
    assert "failed" not in done.stdout
    assert done.stdout.rstrip().endswith("s  in all")


@pytest.mark.parametrize("status", [1, 2, 130])
def test_the_first_failure_ends_it_with_its_status(tmp_path: pathlib.Path, status: int) -> None:
    done = run_parts(tmp_path, "check", status)
    assert done.returncode == status
    assert (tmp_path / "targets").read_text().split() == ["setup", "check"]
    assert f"style, failed with status {status}" in done.stdout
    assert "–    all tests: not begun" in done.stdout
