"""Reads what engines told back from any store: a folder or S3."""

from tabletune.records.snapshot import MAX_SNAPSHOT_BYTES, LiveSnapshot
from tabletune.store.errors import BadName, ObjectMissing
from tabletune.store.folder import FolderStore
from tabletune.store.layout import live_key
from tabletune.store.opening import open_store
from tabletune.store.s3_objects import S3Objects
from tabletune.store.s3_url import parse_s3_url
from tabletune.store.snapshots import FolderSnapshots, SnapshotReader, parse_snapshot


class S3Snapshots:
    """The snapshots in a store in S3; see `SnapshotReader`."""

    def __init__(self, objects: S3Objects) -> None:
        self._objects = objects

    def list_snapshots(self, channel: str) -> tuple[str, ...]:
        """See `SnapshotReader.list_snapshots`."""
        prefix = live_key(channel, "any").removesuffix("any.json")
        names = (key.removeprefix(prefix) for key in self._objects.keys(prefix))
        return tuple(sorted(name.removesuffix(".json") for name in names if _is_one(name)))

    def read_snapshot(self, channel: str, run_id: str) -> LiveSnapshot:
        """See `SnapshotReader.read_snapshot`."""
        blob = self._objects.get(live_key(channel, run_id), MAX_SNAPSHOT_BYTES)
        if blob is None:
            raise ObjectMissing(LiveSnapshot.KIND, run_id, channel)
        return parse_snapshot(channel, run_id, blob.data)

    def remove_snapshot(self, channel: str, run_id: str) -> None:
        """See `SnapshotReader.remove_snapshot`."""
        self._objects.delete(live_key(channel, run_id))


def open_snapshots(url: str) -> SnapshotReader:
    """The snapshots below a store's URL, as `open_store` takes it.

    Raises:
        StoreError: it is no URL of a store.
    """
    if url.startswith("s3://"):
        return S3Snapshots(S3Objects(parse_s3_url(url)))
    store = open_store(url)
    if not isinstance(store, FolderStore):
        raise BadName("a folder or s3://bucket/prefix", repr(url), "correct it")
    return FolderSnapshots(store.root)


def _is_one(name: str) -> bool:
    return name.endswith(".json") and "/" not in name
