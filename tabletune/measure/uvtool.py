"""Runs the `uv` program, which makes engine environments and fetches packages.

uv does not read pip's configuration. A machine that keeps PyTorch's CPU wheel in a folder
that only pip knows (`find-links`) is served by `pip_find_links`, whose result is handed to
uv as `--find-links`.
"""

import collections
import configparser
import os
import pathlib
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

#: Receives one line of progress.
Progress = Callable[[str], None]


#: Installs, and leaves what it installed as bytecode, whatever this process's environment
#: forbids: else each process of each engine would compile all that it imports again.
INSTALL: Final = ("pip", "install", "--compile-bytecode")


def silent(line: str) -> None:
    """A progress callback that does nothing."""
    del line


class UvMissing(Exception):
    """The `uv` package is not installed beside tabletune."""

    def __init__(self) -> None:
        super().__init__(
            "expected the package 'uv' in the control environment, found none; "
            "install it with: pip install 'tabletune[measure]'"
        )


class UvFailed(Exception):
    """A run of uv ended with an error.

    Attributes: command (as typed in a shell), exit_status, tail (its last lines), hint
    (what to do, "" if nothing better than the tail is known).
    """

    def __init__(self, command: str, exit_status: int, tail: list[str]) -> None:
        self.command = command
        self.exit_status = exit_status
        self.tail = tail
        self.hint = hint_for("\n".join(tail))
        message = f"uv ended with status {exit_status}: {command}\n  " + "\n  ".join(tail)
        if self.hint:
            message += f"\n{self.hint}"
        super().__init__(message)


#: Text in uv's output (lower case) -> what to do about it; the first that occurs is used.
HINTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("no space left on device", "os error 28", "disk quota exceeded"),
        "The disk is full: free some space (an engine environment takes about 4 GB, uv's cache "
        "as much again) or choose another folder with --root, then run the same command again.",
    ),
    (
        (
            "dns error",
            "failed to fetch",
            "error sending request",
            "connection refused",
            "operation timed out",
            "could not connect",
            "connection reset",
        ),
        "The package index could not be reached: check the network, proxy and certificate "
        "settings (HTTPS_PROXY, SSL_CERT_FILE), then run the same command again; what was "
        "downloaded is kept in uv's cache.",
    ),
    (
        ("hash mismatch",),
        "A downloaded file is not the one that was pinned. Do not use it; clear it with "
        "'uv cache clean' and try again, or ask who runs the package index.",
    ),
    (
        ("permission denied", "os error 13", "read-only file system"),
        "The folder cannot be written: choose another with --root or correct its permissions.",
    ),
    (
        ("no solution found", "not found in the package registry"),
        "No set of versions fits: check the requirement's spelling and version, and that this "
        "Python and platform have a wheel for it.",
    ),
)


def hint_for(output: str) -> str:
    """What to do about uv's output, or "" if it says enough by itself."""
    lower = output.lower()
    return next((hint for marks, hint in HINTS if any(mark in lower for mark in marks)), "")


def find_uv() -> str:
    """The path of the uv program.

    Raises:
        UvMissing: the package `uv` is not installed.
    """
    try:
        import uv

        return uv.find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise UvMissing from error


def run_uv(
    arguments: Sequence[str | os.PathLike[str]],
    progress: Progress = silent,
    environment: Mapping[str, str] | None = None,
    tail_lines: int = 25,
) -> None:
    """Run uv, handing each line that it prints to `progress`.

    environment: the whole environment of the process (None: this process's own).

    Raises:
        UvMissing: uv is not installed. UvFailed: it ended with an error.
    """
    command = [find_uv(), *(os.fspath(argument) for argument in arguments)]
    if "--find-links" in command:
        # The option would replace the folders of the environment variable.
        inherited = (os.environ if environment is None else environment).get("UV_FIND_LINKS", "")
        command += [f"--find-links={entry}" for entry in inherited.split(",") if entry]
    tail: collections.deque[str] = collections.deque(maxlen=tail_lines)
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        env=None if environment is None else dict(environment),
    )
    try:
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.rstrip()
            if line:
                tail.append(line)
                progress(line)
        exit_status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if exit_status != 0:
        raise UvFailed(shlex.join(command), exit_status, list(tail))


def pip_configuration_files(
    environment: Mapping[str, str], home: pathlib.Path
) -> list[pathlib.Path]:
    """Where pip looks for its configuration on Unix, least important first."""
    single = environment.get("PIP_CONFIG_FILE")
    if single == os.devnull:
        return []
    shared = environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
    files = [pathlib.Path(part) / "pip" / "pip.conf" for part in reversed(shared) if part]
    config_home = environment.get("XDG_CONFIG_HOME")
    user = pathlib.Path(config_home) if config_home else home / ".config"
    files += [pathlib.Path("/etc/pip.conf"), home / ".pip" / "pip.conf", user / "pip" / "pip.conf"]
    if single:
        files.append(pathlib.Path(single))
    return files


def pip_find_links(
    environment: Mapping[str, str] | None = None, home: pathlib.Path | None = None
) -> list[str]:
    """The find-links entries that pip would use: its environment variable, then its files."""
    environment = os.environ if environment is None else environment
    home = pathlib.Path.home() if home is None else home
    entries = environment.get("PIP_FIND_LINKS", "").split()
    for path in pip_configuration_files(environment, home):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue  # pip itself will complain about it; it is not ours to repair
        for section in ("global", "install"):
            entries += parser.get(section, "find-links", fallback="").split()
    return list(dict.fromkeys(entries))
