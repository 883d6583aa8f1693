"""A store in a folder, for one machine or a shared file system.

    store.json                          the marker: this is a store, of this format
    objects/<kind>/<sha256>.json        immutable records
    channels/<channel>/pointer.json     the state in force, the same bytes as its object
    .lock                               held by whoever writes

Readers take no lock: files are replaced whole.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from tabletune.records.base import MAX_RECORD_BYTES, Record, RecordError
from tabletune.records.pointer import Pointer
from tabletune.store.base import (
    AnyRecord,
    Token,
    check_channel,
    check_hash,
    check_move,
    check_token,
    parse_object,
    walk_history,
)
from tabletune.store.durable import (
    exclusive_lock,
    make_folder,
    remove_temporaries,
    store_errors,
    write_durably,
)
from tabletune.store.errors import BadName, NotAStore, ObjectMissing, PointerCorrupt

FORMAT_VERSION = 1
MARKER = json.dumps({"store": "tabletune", "format_version": FORMAT_VERSION}).encode() + b"\n"
#: What may lie in an empty folder that becomes a store, besides names with a leading dot.
HARMLESS = {"lost+found"}


class FolderStore:
    """A store in a folder; `Store` says what it does.

    A folder that is missing or empty reads as an empty store and becomes one at the first
    write. Several processes and threads may use it at once.
    """

    def __init__(self, root: pathlib.Path, lock_timeout_s: float = 30.0) -> None:
        """Open the store.

        Raises:
            NotAStore: the folder holds something else, or a store of a newer format.
            StoreUnwritable: it cannot be read.
        """
        self.root = root
        self._lock_timeout_s = lock_timeout_s
        with store_errors(root, "read the store"):
            _check_marker(root)

    @property
    def url(self) -> str:
        """See `Store.url`."""
        return self.root.absolute().as_uri()

    def check_writable(self) -> None:
        """See `Store.check_writable`."""
        with self._writing(self.root / "store.json"):
            pass

    def put(self, record: Record) -> str:
        """See `Store.put`."""
        data = record.to_json()
        name = hashlib.sha256(data).hexdigest()
        path = self._object_path(type(record), name)
        if self._read(path) != data:
            with self._writing(path):
                write_durably(path, data)
        return name

    def get(self, kind: type[AnyRecord], name: str) -> AnyRecord:
        """See `Store.get`."""
        path = self._object_path(kind, name)
        data = self._read(path)
        if data is None:
            raise ObjectMissing(kind.KIND, name, str(self.root))
        return parse_object(kind, name, data, str(path))

    def list(self, kind: type[Record]) -> tuple[str, ...]:
        """See `Store.list`."""
        folder = self.root / "objects" / kind.KIND
        with store_errors(folder, "list"):
            names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return tuple(
            sorted(name[:-5] for name in names if re.fullmatch(r"[0-9a-f]{64}\.json", name))
        )

    def channels(self) -> tuple[str, ...]:
        """See `Store.channels`."""
        folder = self.root / "channels"
        with store_errors(folder, "list"):
            paths = list(folder.iterdir()) if folder.is_dir() else []
        return tuple(sorted(path.name for path in paths if _is_channel(path)))

    def read_pointer(self, channel: str) -> tuple[Pointer | None, Token]:
        """See `Store.read_pointer`.

        Raises:
            PointerCorrupt: it cannot be read, or is not a state that was ever stored.
        """
        path = self._pointer_path(channel)
        data = self._read(path)
        if data is None:
            return None, Token()
        try:
            pointer = Pointer.from_json(data)
        except RecordError as error:
            raise PointerCorrupt(channel, str(path), error.reason) from error
        state = hashlib.sha256(data).hexdigest()
        # The object was written first, so a pointer without one was damaged or edited.
        if pointer.channel != channel or self._read(self._object_path(Pointer, state)) != data:
            found = f"a state of channel {pointer.channel!r} that was never put in force here"
            raise PointerCorrupt(channel, str(path), found)
        return pointer, Token(state, state)

    def move_pointer(self, channel: str, new: Pointer, expected: Token) -> str:
        """See `Store.move_pointer`."""
        path = self._pointer_path(channel)
        data = new.to_json()
        name = hashlib.sha256(data).hexdigest()
        state_path = self._object_path(Pointer, name)
        with self._writing(path):
            current, token = self.read_pointer(channel)
            check_token(channel, expected, current, token)
            check_move(channel, new, expected, current)
            remove_temporaries(state_path.parent)
            write_durably(state_path, data)
            write_durably(path, data)
        return name

    def history(self, channel: str) -> Iterator[Pointer]:
        """See `Store.history`."""
        return walk_history(self, channel)

    @contextmanager
    def _writing(self, path: pathlib.Path) -> Iterator[None]:
        """The lock, with the store made if need be and left-overs beside `path` removed."""
        with store_errors(self.root, "write to the store"):
            make_folder(self.root)
            with exclusive_lock(self.root / ".lock", self._lock_timeout_s):
                # Under the lock, and again: since this store was opened, another process may
                # have put something else here.
                if not _check_marker(self.root):
                    write_durably(self.root / "store.json", MARKER)
                remove_temporaries(self.root)
                remove_temporaries(path.parent)
                yield

    def _object_path(self, kind: type[Record], name: str) -> pathlib.Path:
        return self.root / "objects" / kind.KIND / f"{check_hash(name)}.json"

    def _pointer_path(self, channel: str) -> pathlib.Path:
        return self.root / "channels" / check_channel(channel) / "pointer.json"

    def _read(self, path: pathlib.Path) -> bytes | None:
        """At most one byte more than a record may have; None where there is no file."""
        with store_errors(path, "read"):
            try:
                with open(path, "rb") as file:
                    return file.read(MAX_RECORD_BYTES + 1)
            except FileNotFoundError:
                return None


def _is_channel(folder: pathlib.Path) -> bool:
    try:
        check_channel(folder.name)
    except BadName:
        return False
    return (folder / "pointer.json").is_file()


def _check_marker(root: pathlib.Path) -> bool:
    """Whether the folder is a store already; False where it can become one.

    Raises:
        NotAStore: it is neither.
        OSError: it cannot be read.
    """
    if not root.exists():
        return False
    if not root.is_dir():
        raise NotAStore(f"a folder at {root}", "a file", "name a folder")
    try:
        marker = (root / "store.json").read_bytes()[:4096]
    except FileNotFoundError:
        foreign = sorted(
            path.name
            for path in root.iterdir()
            if not path.name.startswith(".") and path.name not in HARMLESS
        )
        if not foreign:
            return False
        if {"objects", "channels"} & set(foreign):
            advice = f"if this is a store, put {MARKER.decode().strip()} into its store.json"
        else:
            advice = "name an empty or a new folder for the store"
        raise NotAStore(
            f"a store or an empty folder at {root}",
            f"no store.json, but {', '.join(foreign[:5])}{' …' if len(foreign) > 5 else ''}",
            advice,
        ) from None
    version = _marked_version(marker)
    if version is None:
        raise NotAStore(
            f"the marker {MARKER.decode().strip()} in {root / 'store.json'}",
            repr(marker[:80]),
            "name another folder, or restore the marker if this is a store",
        )
    if version > FORMAT_VERSION:
        raise NotAStore(
            f"a store of format {FORMAT_VERSION} or older at {root}",
            f"format {version}",
            "upgrade tabletune to use it",
        )
    return True


def _marked_version(marker: bytes) -> int | None:
    """The format version that a marker names, None where it is no marker."""
    try:
        fields: object = json.loads(marker)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    found = cast("dict[str, object]", fields)
    version = found.get("format_version")
    if found.get("store") != "tabletune" or type(version) is not int or version < 1:
        return None
    return version
