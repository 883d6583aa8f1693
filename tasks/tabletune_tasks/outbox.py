"""What could not be logged yet: one file an entry, in a folder, sent again later."""

import hashlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from tabletune.records.base import RecordError
from tabletune.records.tracking_entry import TrackedRun, TrackingEntry

#: Entries kept; the oldest make room. A tracker that is away for months must not fill a disk.
MOST_ENTRIES = 500


@dataclass(frozen=True)
class Emptied:
    """How an attempt to empty an outbox ended. `stopped_by` is empty where all went."""

    sent: int
    left: int
    unreadable: int
    stopped_by: str


class Outbox:
    """A folder of entries, the oldest first.

    Files that an entry names are copied in, so that it can be sent whole after the run's own
    folder is gone.
    """

    def __init__(self, folder: pathlib.Path, most: int = MOST_ENTRIES) -> None:
        self._folder, self._most = folder, most

    def put(self, entry: TrackingEntry) -> pathlib.Path:
        """Keep an entry; one with the same key is replaced."""
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = self._with_files(entry)
        path = self._folder / f"{entry.key}.json"
        handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".writing-")
        with os.fdopen(handle, "wb") as file:
            file.write(kept.to_json())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        for old in self.waiting()[: -self._most]:
            self._remove(old)
        return path

    def waiting(self) -> list[pathlib.Path]:
        """The entries' files, the oldest first."""
        if not self._folder.is_dir():
            return []
        found = [p for p in self._folder.glob("*.json") if not p.name.startswith(".")]
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))

    def empty(self, send: Callable[[TrackingEntry], object], fails: type[Exception]) -> Emptied:
        """Send every entry until one fails; what was sent is removed.

        Args:
            send: sends one; raises `fails` where that is not possible now.

        An entry that cannot be read is set aside, once, as ``….unreadable``.
        """
        sent = unreadable = 0
        for path in self.waiting():
            try:
                entry = TrackingEntry.from_json(path.read_bytes())
            except FileNotFoundError:  # another run sent it
                continue
            except RecordError:
                path.rename(path.with_suffix(".unreadable"))
                unreadable += 1
                continue
            try:
                send(entry)
            except fails as error:
                return Emptied(sent, len(self.waiting()), unreadable, str(error))
            self._remove(path)
            sent += 1
        return Emptied(sent, len(self.waiting()), unreadable, "")

    def _with_files(self, entry: TrackingEntry) -> TrackingEntry:
        def kept(run: TrackedRun) -> TrackedRun:
            if not run.files:
                return run
            folder = self._files_of(entry.key)
            folder.mkdir(exist_ok=True)
            files: dict[str, str] = {}
            for name, path in run.files.items():
                # The copy has the artifact's own last name, since that is what is uploaded.
                place = folder / hashlib.sha256(name.encode()).hexdigest()[:16]
                place.mkdir(exist_ok=True)
                copy = place / pathlib.PurePosixPath(name).name
                if pathlib.Path(path).is_file() and pathlib.Path(path) != copy:
                    shutil.copyfile(path, copy)
                files[name] = str(copy)
            return run.model_copy(update={"files": files})

        stages = tuple(kept(stage) for stage in entry.stages)
        return entry.model_copy(update={"run": kept(entry.run), "stages": stages})

    def _files_of(self, key: str) -> pathlib.Path:
        return self._folder / f"{key}.files"

    def _remove(self, path: pathlib.Path) -> None:
        path.unlink(missing_ok=True)
        shutil.rmtree(self._files_of(path.stem), ignore_errors=True)
