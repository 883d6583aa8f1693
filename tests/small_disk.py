"""A small real file system, for what only a full disk shows."""

import contextlib
import pathlib
import subprocess
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def mounted(mount: pathlib.Path, kib: int) -> Iterator[pathlib.Path]:
    """A file system of so many KiB at `mount`; skips the test where this user may mount none."""
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(mount)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)
