"""A store in a folder, for one machine or a shared file system.

The layout is that of store/layout.py, with a file `.lock`, held by whoever writes. Readers
take no lock: files are replaced whole.
"""

import hashlib
import pathlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tabletune.durable_file import make_folder, open_to_read, write_durably
from tabletune.records.base import MAX_RECORD_BYTES, Record, RecordError
from tabletune.records.control import MAX_CONTROL_BYTES, Control
from tabletune.records.pointer import Pointer
from tabletune.store.base import (
    AnyRecord,
    Token,
    check_move,
    check_token,
    parse_object,
    walk_history,
)
from tabletune.store.durable import (
    exclusive_lock,
    remove_temporaries,
    store_errors,
)
from tabletune.store.errors import BadName, NotAStore, ObjectMissing, PointerCorrupt
from tabletune.store.layout import (
    MARKER,
    MARKER_KEY,
    check_channel,
    control_key,
    object_key,
    pointer_key,
)
from tabletune.store.marker import check_marker, foreign_content

#: What may lie in an empty folder that becomes a store, besides names with a leading dot.
HARMLESS: Final = {"lost+found"}


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

    def exists(self) -> bool:
        """See `Store.exists`."""
        with store_errors(self.root, "read the store"):
            return _check_marker(self.root)

    def check_writable(self) -> None:
        """See `Store.check_writable`."""
        with self._writing(self.root / MARKER_KEY):
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

    def remove(self, kind: type[Record], name: str) -> None:
        """See `Store.remove`."""
        path = self._object_path(kind, name)
        if self._read(path, 0) is not None:
            with self._writing(path):
                path.unlink(missing_ok=True)

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

    def read_control(self, channel: str) -> Control | None:
        """See `Store.read_control`."""
        data = self._read(self.root / control_key(channel), MAX_CONTROL_BYTES)
        return None if data is None else Control.from_json(data)

    def write_control(self, control: Control) -> None:
        """See `Store.write_control`."""
        path = self.root / control_key(control.channel)
        with self._writing(path):
            write_durably(path, control.to_json())

    @contextmanager
    def _writing(self, path: pathlib.Path) -> Iterator[None]:
        """The lock, with the store made if need be and left-overs beside `path` removed."""
        with store_errors(self.root, "write to the store"):
            make_folder(self.root)
            with exclusive_lock(self.root / ".lock", self._lock_timeout_s):
                # Under the lock, and again: since this store was opened, another process may
                # have put something else here.
                if not _check_marker(self.root):
                    write_durably(self.root / MARKER_KEY, MARKER)
                remove_temporaries(self.root)
                remove_temporaries(path.parent)
                yield

    def _object_path(self, kind: type[Record], name: str) -> pathlib.Path:
        return self.root / object_key(kind, name)

    def _pointer_path(self, channel: str) -> pathlib.Path:
        return self.root / pointer_key(channel)

    def _read(self, path: pathlib.Path, limit_bytes: int = MAX_RECORD_BYTES) -> bytes | None:
        """At most one byte more than the limit; None where there is no file."""
        with store_errors(path, "read"):
            try:
                with open_to_read(path) as file:
                    return file.read(limit_bytes + 1)
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
        with open_to_read(root / MARKER_KEY) as file:
            marker = file.read(4096)
    except FileNotFoundError:
        foreign = sorted(
            path.name
            for path in root.iterdir()
            if not path.name.startswith(".") and path.name not in HARMLESS
        )
        if not foreign:
            return False
        raise foreign_content(str(root), foreign) from None
    check_marker(marker, str(root / MARKER_KEY))
    return True
