"""The folder of a run: records by fingerprint, logs, reports, and the table store.

OUT/request.json                 what was asked for last
OUT/records/ID/KIND.json         what is valid for one fingerprint (ID: its identity)
OUT/records/ID/partial/…         cells of a profile that is not finished
OUT/logs/                        one log per engine
OUT/reports/                     one folder per report
OUT/store/                       the table store, unless another is named
"""

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import TypeVar

from filelock import FileLock, Timeout

from tabletune.durable_file import open_to_read, write_durably
from tabletune.records.base import Record, RecordError

AnyRecord = TypeVar("AnyRecord", bound=Record)


class WorkspaceError(RuntimeError):
    """The run's folder cannot be used."""

    def __init__(self, path: pathlib.Path, found: str, advice: str) -> None:
        self.path, self.found, self.advice = path, found, advice
        super().__init__(f"{path}: {found}; {advice}")


class Workspace:
    """Reads and writes one run's folder. Every write is atomic.

    Args:
        root: the folder, made when missing.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root.resolve()
        self._make(self.root)

    @property
    def logs(self) -> pathlib.Path:
        return self._make(self.root / "logs")

    @property
    def reports(self) -> pathlib.Path:
        return self._make(self.root / "reports")

    @property
    def store_root(self) -> pathlib.Path:
        return self.root / "store"

    @property
    def request_path(self) -> pathlib.Path:
        return self.root / "request.json"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; of two runs in one folder the second is told.

        Raises:
            WorkspaceError: another run holds it, or it cannot be written.
        """
        path = self.root / ".lock"
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            advice = "wait for it, or use another --out"
            raise WorkspaceError(self.root, "another run is using this folder", advice) from error
        except OSError as error:
            found, advice = f"cannot be written ({error.strerror})", "choose another --out"
            raise WorkspaceError(path, found, advice) from error
        try:
            yield
        finally:
            lock.release()

    def save(self, identity: str, record: Record, name: str = "") -> pathlib.Path:
        """Write a record that is valid for the fingerprint `identity`."""
        path = self._record_path(identity, name or record.KIND)
        self.write(path, record.to_json())
        return path

    def write_json(self, identity: str, name: str, value: object) -> None:
        """Write what is kept beside the records but read by no program here."""
        text = json.dumps(value, indent=1, default=float)
        self.write(self._record_path(identity, name), text.encode())

    def load(self, identity: str, kind: type[AnyRecord], name: str = "") -> AnyRecord | None:
        """The record of that kind for `identity`, or None where there is none.

        Raises:
            WorkspaceError: it is there but cannot be read; it is left in place.
        """
        path = self._record_path(identity, name or kind.KIND)
        try:
            with open_to_read(path) as file:
                return kind.from_json(file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            found, advice = f"cannot be read ({error.strerror})", "correct its permissions"
            raise WorkspaceError(path, found, advice) from error
        except RecordError as error:
            advice = "delete the file to measure again"
            raise WorkspaceError(path, str(error), advice) from error

    def discard(self, identity: str, name: str) -> None:
        """Remove one record, if it is there."""
        self._record_path(identity, name).unlink(missing_ok=True)

    def write(self, path: pathlib.Path, data: bytes) -> None:
        """Write `path` whole or not at all.

        Raises:
            WorkspaceError: the disk is full or the folder cannot be written.
        """
        self._make(path.parent)
        try:
            write_durably(path, data, mode=0o600)
        except OSError as error:
            advice = "free space or choose another --out; what was there before is untouched"
            raise WorkspaceError(path, f"cannot be written ({error.strerror})", advice) from error

    def _record_path(self, identity: str, name: str) -> pathlib.Path:
        return self.root / "records" / identity[:16] / f"{name}.json"

    def _make(self, folder: pathlib.Path) -> pathlib.Path:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            advice = "choose another --out"
            raise WorkspaceError(folder, f"cannot be made ({error.strerror})", advice) from error
        return folder
