"""What could not be logged yet: one file an entry, in a folder, sent again later."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from filelock import FileLock, Timeout

from tabletune.records.base import RecordError
from tabletune.records.tracking_entry import TrackedRun, TrackingEntry

#: Entries kept; the oldest make room. A tracker that is away for months must not fill a disk.
MOST_ENTRIES = 500
#: What a killed run left half-written goes after a day.
LEFT_OVER_NS = 86_400 * 10**9


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
        self._sweep(path.stat().st_mtime_ns)
        return path

    def waiting(self) -> list[pathlib.Path]:
        """The entries' files, the oldest first."""
        if not self._folder.is_dir():
            return []
        found: list[tuple[int, str, pathlib.Path]] = []
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # another run sent it
                if not path.name.startswith("."):
                    found.append((path.stat().st_mtime_ns, path.name, path))
        return [path for _, _, path in sorted(found)]

    def empty(
        self,
        send: Callable[[TrackingEntry], object],
        fails: type[Exception],
        wait_s: float = 0.0,
    ) -> Emptied:
        """Send every entry until one fails; what was sent is removed.

        Args:
            send: sends one; raises `fails` where that is not possible now. Where the error's
                attribute `refused` is true, that entry alone is not taken: it stays, and the
                others are sent.
            wait_s: how long to wait for another process that sends just now.

        An entry that cannot be read is set aside, once, as ``….unreadable``. Of two processes
        one sends.
        """
        if not self._folder.is_dir():
            return Emptied(0, 0, 0, "")
        try:
            lock = self._folder.with_name(f".{self._folder.name}.lock")
            with FileLock(lock, timeout=wait_s):
                return self._empty(send, fails)
        except Timeout:
            return Emptied(0, len(self.waiting()), 0, "another run sends what waits")

    def _empty(self, send: Callable[[TrackingEntry], object], fails: type[Exception]) -> Emptied:
        sent = unreadable = 0
        refusal = ""
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
                refusal = str(error)
                if not getattr(error, "refused", False):
                    break
                continue
            self._remove(path)
            sent += 1
        return Emptied(sent, len(self.waiting()), unreadable, refusal)

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

    def _sweep(self, now_ns: int) -> None:
        """Remove what processes left that were killed while they wrote. `now_ns`: the time of
        something just written here, so that a clock that was set does no harm."""
        for path in self._folder.iterdir():
            torn = path.name.startswith(".writing-")
            torn = torn or (path.suffix == ".files" and not path.with_suffix(".json").exists())
            with contextlib.suppress(OSError):
                if torn and now_ns - path.stat().st_mtime_ns > LEFT_OVER_NS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
