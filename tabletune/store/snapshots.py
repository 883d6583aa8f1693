"""What engines told back: listing, reading and removing live snapshots.

Engines write theirs through the source (`Source.write`, key `live_key`); readers find all
engines of a channel here. An object that cannot be read hides no other.
"""

import pathlib
from dataclasses import dataclass
from typing import Protocol

from tabletune.durable_file import open_to_read
from tabletune.records.base import RecordError
from tabletune.records.snapshot import MAX_SNAPSHOT_BYTES, LiveSnapshot
from tabletune.store.durable import store_errors
from tabletune.store.errors import BadName, ObjectMissing
from tabletune.store.layout import live_key


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of a channel by run id, and what could not be read, by name and reason."""

    readable: dict[str, LiveSnapshot]
    damaged: dict[str, str]


class SnapshotReader(Protocol):
    """Reads what engines told back. Every method may raise a `StoreError`."""

    def list_snapshots(self, channel: str) -> tuple[str, ...]:
        """The run ids that have a snapshot, sorted."""
        ...

    def read_snapshot(self, channel: str, run_id: str) -> LiveSnapshot:
        """One engine run's snapshot.

        Raises:
            ObjectMissing: there is none.
            RecordError: it is damaged, or not the one that its name says.
        """
        ...

    def remove_snapshot(self, channel: str, run_id: str) -> None:
        """Remove one engine run's snapshot; nothing where there is none. A living engine
        writes it again."""
        ...


class FolderSnapshots:
    """The snapshots in a store's folder; see `SnapshotReader`."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def list_snapshots(self, channel: str) -> tuple[str, ...]:
        """See `SnapshotReader.list_snapshots`."""
        folder = (self.root / live_key(channel, "any")).parent
        with store_errors(folder, "list"):
            paths = list(folder.iterdir()) if folder.is_dir() else []
        return tuple(sorted(path.stem for path in paths if _is_snapshot(channel, path)))

    def read_snapshot(self, channel: str, run_id: str) -> LiveSnapshot:
        """See `SnapshotReader.read_snapshot`."""
        path = self.root / live_key(channel, run_id)
        with store_errors(path, "read"):
            try:
                with open_to_read(path) as file:
                    data = file.read(MAX_SNAPSHOT_BYTES + 1)
            except FileNotFoundError:
                raise ObjectMissing(LiveSnapshot.KIND, run_id, str(self.root)) from None
        return parse_snapshot(channel, run_id, data)

    def remove_snapshot(self, channel: str, run_id: str) -> None:
        """See `SnapshotReader.remove_snapshot`."""
        path = self.root / live_key(channel, run_id)
        with store_errors(path, "remove"):
            path.unlink(missing_ok=True)


def parse_snapshot(channel: str, run_id: str, data: bytes) -> LiveSnapshot:
    """The snapshot in an object's bytes.

    Raises:
        RecordError: it cannot be read, or is another run's or channel's.
    """
    snapshot = LiveSnapshot.from_json(data)
    found = (snapshot.channel, snapshot.engine.run_id)
    if found != (channel, run_id):
        raise RecordError(LiveSnapshot.KIND, f"it is of {found}, not of {(channel, run_id)}")
    return snapshot


def read_all(reader: SnapshotReader, channel: str) -> Snapshots:
    """Every snapshot of a channel; what cannot be read is told, not raised."""
    found = Snapshots({}, {})
    for run_id in reader.list_snapshots(channel):
        try:
            found.readable[run_id] = reader.read_snapshot(channel, run_id)
        except RecordError as error:
            found.damaged[run_id] = error.reason
        except ObjectMissing:
            continue  # removed meanwhile
    return found


def _is_snapshot(channel: str, path: pathlib.Path) -> bool:
    try:
        live_key(channel, path.stem)
    except BadName:
        return False
    return path.suffix == ".json"
