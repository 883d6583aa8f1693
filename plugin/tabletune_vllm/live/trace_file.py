"""The decision log's file: bounded, rotated, and given up when it cannot be written."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from tabletune_vllm.logs import warn_once

FILE_BYTES_MAX = 16 * 2**20
FILES_KEPT = 4


class TraceFile:
    """Appends whole lines; at most `files` files of about `file_bytes` each.

    PATH is the newest, PATH.1 the one before, and so on. Each file begins with header(number).
    A path that another engine writes to is left alone: this one's name gets the run id. When
    writing fails the log ends; `problem` says why, and the engine is none the wiser.
    """

    def __init__(
        self,
        path: Path,
        run_id: str,
        header: Callable[[int], bytes],
        file_bytes: int = FILE_BYTES_MAX,
        files: int = FILES_KEPT,
    ) -> None:
        self.path = path
        self.problem: str | None = None
        self._run_id = run_id
        self._header = header
        self._file_bytes, self._files = file_bytes, files
        self._number = 0
        self._descriptor: int | None = None
        self._size = 0
        self._lock: int | None = None

    def write(self, line: bytes) -> None:
        """Append one line that ends with a newline. Never raises for what a disk does."""
        if self.problem is not None:
            return
        try:
            if self._descriptor is None:
                self._lock_path()
                self._open()
            elif self._size + len(line) > self._file_bytes:
                os.close(self._descriptor)
                self._descriptor = None
                self._open()
            self._append(line)
        except OSError as error:
            self.problem = f"{error.strerror or error!r} at {self.path}"
            self.close()
            warn_once(f"TableTune's decision log ends: {self.problem}")

    def close(self) -> None:
        """Close the file and let others have its path."""
        for descriptor in (self._descriptor, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._descriptor = self._lock = None

    def _append(self, line: bytes) -> None:
        assert self._descriptor is not None
        view = memoryview(line)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._size += len(line)

    def _lock_path(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self._locked():
            self.path = self.path.with_name(f"{self.path.name}.{self._run_id}")
            if not self._locked():
                raise OSError(None, "another engine writes there")

    def _locked(self) -> bool:
        lock = self.path.with_name(f".{self.path.name}.lock")
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            return False
        return True

    def _open(self) -> None:
        """A new file; older ones move on by one name, the oldest goes."""
        for number in range(self._files - 1, 0, -1):
            older = self.path if number == 1 else self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o644)
        self._size = 0
        self._append(self._header(self._number))
        self._number += 1

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
