"""A store in S3, or in any server that speaks its protocol and keeps conditions of writes.

The layout is that of store/layout.py, below the prefix. Objects are written with
`If-None-Match: *`, the pointer with `If-Match`; no lock is needed. A server that ignores
conditions is found out before the first promotion and refused.
"""

import hashlib
import re
import threading
from collections.abc import Iterator
from typing import Final

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
from tabletune.store.errors import (
    BadName,
    LostRace,
    ObjectMissing,
    OutcomeUnknown,
    PointerCorrupt,
    StoreError,
    StoreUnreachable,
)
from tabletune.store.layout import (
    MARKER,
    MARKER_KEY,
    check_channel,
    control_key,
    object_key,
    pointer_key,
)
from tabletune.store.marker import check_marker, foreign_content
from tabletune.store.s3_objects import S3Objects
from tabletune.store.s3_probe import check_conditions

#: How often a write is tried that met another one and changed nothing.
TRIES: Final = 5


class S3Store:
    """A store in S3; `Store` says what it does.

    Nothing is asked of the server until it is used. Several processes and threads may use
    the same store at once.
    """

    def __init__(self, objects: S3Objects) -> None:
        self._objects = objects
        self._marked: bool | None = None
        self._conditions_hold = False
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """See `Store.url`."""
        return self._objects.place.url

    def exists(self) -> bool:
        """See `Store.exists`."""
        if not self._marked:
            self._marked = self._look()
        return self._marked

    def check_writable(self) -> None:
        """See `Store.check_writable`.

        Raises:
            ConditionsIgnored: the server would let promotions overwrite each other.
        """
        self._open_for_writing()
        with self._lock:
            if not self._conditions_hold:
                check_conditions(self._objects)
                self._conditions_hold = True

    def put(self, record: Record) -> str:
        """See `Store.put`."""
        data = record.to_json()
        name = hashlib.sha256(data).hexdigest()
        self._put_object(object_key(type(record), name), data)
        return name

    def get(self, kind: type[AnyRecord], name: str) -> AnyRecord:
        """See `Store.get`."""
        key = object_key(kind, name)
        data = self._read(key)
        if data is None:
            raise ObjectMissing(kind.KIND, name, self.url)
        return parse_object(kind, name, data, self._where(key))

    def remove(self, kind: type[Record], name: str) -> None:
        """See `Store.remove`."""
        key = object_key(kind, name)
        self._open()
        self._objects.delete(key)

    def list(self, kind: type[Record]) -> tuple[str, ...]:
        """See `Store.list`."""
        self._open()
        folder = f"objects/{kind.KIND}/"
        names = [key.removeprefix(folder) for key in self._objects.keys(folder)]
        return tuple(
            sorted(name[:-5] for name in names if re.fullmatch(r"[0-9a-f]{64}\.json", name))
        )

    def channels(self) -> tuple[str, ...]:
        """See `Store.channels`."""
        self._open()
        found = [key.split("/") for key in self._objects.keys("channels/")]
        names = [parts[1] for parts in found if len(parts) == 3 and parts[2] == "pointer.json"]
        return tuple(sorted(name for name in names if _is_channel(name)))

    def read_pointer(self, channel: str) -> tuple[Pointer | None, Token]:
        """See `Store.read_pointer`.

        Raises:
            PointerCorrupt: it cannot be read, or is not a state that was ever stored.
        """
        key = pointer_key(channel)
        self._open()
        blob = self._objects.get(key, MAX_RECORD_BYTES)
        if blob is None:
            return None, Token()
        try:
            pointer = Pointer.from_json(blob.data)
        except RecordError as error:
            raise PointerCorrupt(channel, self._where(key), error.reason) from error
        state = hashlib.sha256(blob.data).hexdigest()
        # The object was written first, so a pointer without one was damaged or edited.
        if pointer.channel != channel or self._read(object_key(Pointer, state)) != blob.data:
            found = f"a state of channel {pointer.channel!r} that was never put in force here"
            raise PointerCorrupt(channel, self._where(key), found)
        return pointer, Token(state, blob.tag)

    def move_pointer(self, channel: str, new: Pointer, expected: Token) -> str:
        """See `Store.move_pointer`.

        Raises:
            ConditionsIgnored: the server would let promotions overwrite each other.
            OutcomeUnknown: the answer was lost, and the pointer cannot be read or has not moved
                so far.
        """
        check_channel(channel)
        self.check_writable()
        data = new.to_json()
        name = hashlib.sha256(data).hexdigest()
        for _ in range(TRIES):
            current, token = self.read_pointer(channel)
            # The same content is the same state, whatever tag the server gives to a copy of it.
            check_token(channel, Token(expected.state), current, Token(token.state))
            check_move(channel, new, expected, current)
            self._put_object(object_key(Pointer, name), data)
            try:
                moved = self._objects.put(
                    pointer_key(channel),
                    data,
                    only_new=current is None,
                    only_over=token.condition,
                )
            except StoreUnreachable as error:
                if self._is_in_force(channel, name, error):
                    return name
                raise OutcomeUnknown(
                    error.expected,
                    error.found,
                    "the pointer has not moved, but the write may still arrive: look with `show` "
                    "before you promote again",
                ) from error
            # A write whose answer was lost is repeated by boto3 and then meets itself.
            if moved is not None or self._is_in_force(channel, name):
                return name
        raise LostRace(channel, self.read_pointer(channel)[0])

    def read_control(self, channel: str) -> Control | None:
        """See `Store.read_control`."""
        self._open()
        blob = self._objects.get(control_key(channel), MAX_CONTROL_BYTES)
        return None if blob is None else Control.from_json(blob.data)

    def write_control(self, control: Control) -> None:
        """See `Store.write_control`."""
        self._open_for_writing()
        self._objects.put(control_key(control.channel), control.to_json())

    def history(self, channel: str) -> Iterator[Pointer]:
        """See `Store.history`."""
        return walk_history(self, channel)

    def _is_in_force(self, channel: str, name: str, lost: StoreUnreachable | None = None) -> bool:
        """Whether the state `name` came into force, perhaps with another after it since."""
        try:
            current, token = self.read_pointer(channel)
        except StoreError as error:
            if lost is None:
                raise
            raise OutcomeUnknown(
                lost.expected,
                lost.found,
                "the pointer may or may not have moved, and cannot be read just now: look with "
                "`show` before you promote again",
            ) from error
        return current is not None and name in (token.state, current.previous_pointer)

    def _put_object(self, key: str, data: bytes) -> None:
        """Write an immutable object, or repair it; nothing where it is there and intact."""
        self._open_for_writing()
        for _ in range(TRIES):
            blob = self._objects.get(key, MAX_RECORD_BYTES)
            if blob is not None and blob.data == data:
                return
            tag = self._objects.put(
                key, data, only_new=blob is None, only_over=blob.tag if blob else ""
            )
            if tag is not None:
                return
        raise StoreError(
            f"to write {self._where(key)}",
            f"another content there at each of {TRIES} tries",
            "see who else writes there",
        )

    def _read(self, key: str) -> bytes | None:
        self._open()
        blob = self._objects.get(key, MAX_RECORD_BYTES)
        return None if blob is None else blob.data

    def _open(self) -> None:
        """Look once whether the place is a store or can become one.

        Raises:
            NotAStore: it is neither.
        """
        if self._marked is None:
            self._marked = self._look()

    def _open_for_writing(self) -> None:
        # Looked at again: since it was opened, something else may have been put here.
        if not self._marked and not self._look():
            self._objects.put(MARKER_KEY, MARKER, only_new=True)
        self._marked = True

    def _look(self) -> bool:
        blob = self._objects.get(MARKER_KEY, MAX_RECORD_BYTES)
        if blob is not None:
            check_marker(blob.data, self._where(MARKER_KEY))
            return True
        foreign = [name for name in self._objects.top_level() if name != "probe"]
        if foreign:
            raise foreign_content(self.url, foreign)
        return False

    def _where(self, key: str) -> str:
        place = self._objects.place
        return f"s3://{place.bucket}/{place.key(key)}"


def _is_channel(name: str) -> bool:
    try:
        check_channel(name)
    except BadName:
        return False
    return True
