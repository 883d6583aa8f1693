"""The decision log's file: bounded, rotated, shared with nobody, given up on a full disk."""

import errno
import os
from pathlib import Path

import pytest

from tabletune_vllm.live import trace_file
from tabletune_vllm.live.trace_file import TraceFile


def _header(number: int) -> bytes:
    return f"header {number}\n".encode()


def test_files_are_rotated_and_bounded(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "log", "run", _header, file_bytes=100, files=3)
    for number in range(40):
        file.write(b"%030d\n" % number)
    file.close()
    names = sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("."))
    assert names == ["log", "log.1", "log.2"]
    assert all((tmp_path / name).stat().st_size <= 131 for name in names)
    newest = (tmp_path / "log").read_bytes().splitlines()
    assert newest[0].startswith(b"header ")
    assert newest[-1] == b"%030d" % 39
    before = (tmp_path / "log.1").read_bytes().splitlines()
    assert int(newest[1]) == int(before[-1]) + 1


def test_an_earlier_runs_log_is_kept(tmp_path: Path) -> None:
    for run in ("one", "two"):
        file = TraceFile(tmp_path / "log", run, _header)
        file.write(run.encode() + b"\n")
        file.close()
    assert b"two" in (tmp_path / "log").read_bytes()
    assert b"one" in (tmp_path / "log.1").read_bytes()


def test_two_engines_do_not_share_a_file(tmp_path: Path) -> None:
    first, second = (TraceFile(tmp_path / "log", run, _header) for run in ("one", "two"))
    first.write(b"1\n")
    second.write(b"2\n")
    first.write(b"1\n")
    assert (tmp_path / "log").read_bytes() == b"header 0\n1\n1\n"
    assert (tmp_path / "log.two").read_bytes() == b"header 0\n2\n"
    first.close()
    second.close()


def test_a_full_disk_ends_the_log_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TraceFile(tmp_path / "log", "run", _header)
    file.write(b"good\n")

    def full(descriptor: int, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(trace_file.os, "write", full)
    file.write(b"lost\n")
    monkeypatch.undo()
    file.write(b"not written any more\n")
    assert "No space left" in (file.problem or "")
    assert (tmp_path / "log").read_bytes() == b"header 0\ngood\n"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = TraceFile(tmp_path / "file" / "log", "run", _header)
    file.write(b"x\n")
    assert file.problem is not None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_really_full_device(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    file = TraceFile(tmp_path / "log", "run", _header)
    # The symbolic link is an earlier log and moves on; the header is written beside it.
    file.write(b"x\n")
    assert file.problem is None
    assert (tmp_path / "log").read_bytes() == b"header 0\nx\n"
    file.close()
