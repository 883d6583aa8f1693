"""What a store does, whatever it is kept in, and the rules that all stores share.

A store holds immutable records, named by the hash of their bytes, and one pointer per
channel. Every state that a pointer was ever in is an immutable record too, and names the one
before it; so a channel's history cannot be rewritten unnoticed.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tabletune.records.base import Record, RecordError
from tabletune.records.control import Control
from tabletune.records.pointer import Pointer
from tabletune.store.errors import LostRace, ObjectCorrupt, StoreError

AnyRecord = TypeVar("AnyRecord", bound=Record)


@dataclass(frozen=True)
class Token:
    """What a pointer looked like when it was read; `move_pointer` demands that it still does.

    state: the name of the pointer's state, empty where the channel has none.
    condition: the store's own mark of it (an S3 entity tag; in a folder the same as `state`).
    """

    state: str = ""
    condition: str = ""


class Store(Protocol):
    """A store of records and pointers.

    Every method may raise a `StoreError`; after any of them, what was in force still is.
    """

    @property
    def url(self) -> str:
        """Where the store is, as an engine's TABLETUNE_SOURCE names it."""
        ...

    def exists(self) -> bool:
        """Whether there is a store; a place that is missing or empty becomes one at the first
        write."""
        ...

    def check_writable(self) -> None:
        """Do nothing if a write would be let in; what may still fail is space."""
        ...

    def put(self, record: Record) -> str:
        """Store a record under its content hash and return that. Idempotent; heals a
        corrupted object of that name."""
        ...

    def get(self, kind: type[AnyRecord], name: str) -> AnyRecord:
        """The record of that kind and name, its bytes hashed again.

        The name is the hash of the stored bytes. A record that was written in an older format
        has another `content_hash` once it is lifted; go on naming it by `name`.

        Raises:
            ObjectMissing: there is none.
            ObjectCorrupt: its bytes are not what its name says.
            RecordError: it is intact but of a newer format.
        """
        ...

    def remove(self, kind: type[Record], name: str) -> None:
        """Remove a record; nothing where it is not there. Who asks must know that nobody needs
        it: no history, no engine and no other record."""
        ...

    def list(self, kind: type[Record]) -> tuple[str, ...]:
        """The names of all records of that kind, sorted."""
        ...

    def channels(self) -> tuple[str, ...]:
        """The channels that have a pointer, sorted."""
        ...

    def read_pointer(self, channel: str) -> tuple[Pointer | None, Token]:
        """The state in force, None where the channel has none, and the token to move it."""
        ...

    def move_pointer(self, channel: str, new: Pointer, expected: Token) -> str:
        """Put `new` in force if the pointer is still what `expected` says; returns its name.

        Raises:
            LostRace: it is not; nothing was changed.
        """
        ...

    def read_control(self, channel: str) -> Control | None:
        """What the channel's engines are told to do; None where nothing was ever said.

        Raises:
            RecordError: it is damaged; writing it anew repairs it.
        """
        ...

    def write_control(self, control: Control) -> None:
        """Tell the engines of `control.channel` what to do; the last writer wins."""
        ...

    def history(self, channel: str) -> Iterator[Pointer]:
        """All states of the channel, from the one in force back to the first, read as asked
        for.

        Raises:
            ObjectMissing, ObjectCorrupt: at a state that is lost; what came before it in the
                iteration is sound.
        """
        ...


def parse_object(kind: type[AnyRecord], name: str, data: bytes, where: str) -> AnyRecord:
    """The record in an object's bytes, after checking that they hash to its name.

    Raises:
        ObjectCorrupt: they do not.
        RecordError: they do, but this version cannot read them.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != name:
        raise ObjectCorrupt(
            kind.KIND, name, where, f"{len(data)} bytes with the hash {found[:12]}…"
        )
    return kind.from_json(data)


def check_move(channel: str, new: Pointer, expected: Token, current: Pointer | None) -> None:
    """Check that `new` follows the state that was read.

    Args:
        current: the state in force, whose token equals `expected`.

    Raises:
        StoreError: `new` is for another channel, or does not name `current` as what was
            before it.
    """
    should = (
        channel,
        current.sequence + 1 if current else 1,
        expected.state,
        current.table_version if current else "",
    )
    does = (new.channel, new.sequence, new.previous_pointer, new.previous_version)
    if should != does:
        raise StoreError(
            f"a pointer with (channel, sequence, previous pointer, previous version) {should}",
            repr(does),
            "make the new pointer from the one that was read",
        )


def check_token(channel: str, expected: Token, current: Pointer | None, token: Token) -> None:
    """Raise `LostRace` unless the pointer is still what was read."""
    if token != expected:
        raise LostRace(channel, current)


def walk_history(store: Store, channel: str) -> Iterator[Pointer]:
    """`Store.history` by following `previous_pointer`."""
    pointer, token = store.read_pointer(channel)
    name = token.state
    while pointer is not None:
        yield pointer
        before = pointer.previous_pointer
        if not before:
            return
        try:
            older = store.get(Pointer, before)
        except RecordError as error:
            raise ObjectCorrupt(Pointer.KIND, before, f"channel {channel}", str(error)) from error
        if older.channel != channel or older.sequence != pointer.sequence - 1:
            raise ObjectCorrupt(
                Pointer.KIND,
                name,
                f"channel {channel}",
                f"move {pointer.sequence} after move {older.sequence} of channel {older.channel!r}",
            )
        pointer, name = older, before
