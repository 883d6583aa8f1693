"""The errors of a store.

StoreError
├── NotAStore          the folder holds other things, or a store of a newer format
│   └── NoStore            nothing is there at all, where a store is needed
├── StoreUnwritable    no permission, a read-only file system
├── StoreFull          no space or quota left
├── StoreBusy          another process holds the lock for too long
├── StoreUnreachable   no answer, not in time, or a server's own failure
│   └── OutcomeUnknown     a pointer may or may not have moved
├── ConditionsIgnored  a store that would let two promotions overwrite each other
├── SupportMissing     a library that this kind of store needs is not installed
├── TooLarge           an object larger than any record may be
├── BadName            not a hash or a channel name
├── NoSuchChannel      a channel that never had a table, where others have one
├── ObjectMissing      no object of that name
├── ObjectCorrupt      an object whose content is not what its name says
├── PointerCorrupt     a channel's pointer that cannot be trusted
├── LostRace           someone else moved the pointer first
└── MoveRefused        a promotion or roll-back that must not happen
"""

from tabletune.records.pointer import Pointer


class StoreError(Exception):
    """A store cannot do what was asked.

    Attributes:
        expected, found: what was expected, and what was there.
        advice: what to do next.
    """

    def __init__(self, expected: str, found: str, advice: str) -> None:
        super().__init__(f"expected {expected}, found {found}; {advice}")
        self.expected = expected
        self.found = found
        self.advice = advice


class NotAStore(StoreError):
    """The place holds something else, or a store of a format that this version cannot read."""


class NoStore(NotAStore):
    """The place is missing or empty; a name with a slip in it looks like that.

    Attributes:
        url: where a store was expected.
    """

    def __init__(self, url: str) -> None:
        super().__init__(
            f"a table store at {url}",
            "nothing there",
            "correct --store, or --out for the store OUT/store (a deployment's `store` in its "
            "file); a run makes a new store",
        )
        self.url = url


class NoSuchChannel(StoreError):
    """A channel that never had a table, in a store where others have one.

    Attributes:
        channel: its name.
        there: the channels that have one.
    """

    def __init__(self, url: str, channel: str, there: tuple[str, ...]) -> None:
        super().__init__(
            f"a channel of {url} that has or had a table",
            f"{channel!r}; channels there: {', '.join(there)}",
            "name one of them, or promote a table to it first",
        )
        self.channel, self.there = channel, there


class StoreUnwritable(StoreError):
    """The store cannot be written, or cannot be read, for lack of permission."""


class StoreFull(StoreError):
    """No space is left; what was in force before still is."""


class StoreBusy(StoreError):
    """Another process has held the store's lock for too long."""


class StoreUnreachable(StoreError):
    """The store gave no answer, not in time, or failed itself; trying again may help."""


class OutcomeUnknown(StoreUnreachable):
    """The answer to a pointer's move was lost, and where the pointer is cannot be read."""


class ConditionsIgnored(StoreError):
    """The store ignores the conditions of writes, so that promotions could overwrite others."""


class SupportMissing(StoreError):
    """A library that this kind of store needs is not installed."""


class TooLarge(StoreError):
    """An object is larger than any record of its kind may be; it was not read."""


class BadName(StoreError):
    """A name that is no hash or no channel name; it was not used as a path."""


class ObjectMissing(StoreError):
    """The store has no such object.

    Attributes:
        kind, name: the record's kind and content hash.
    """

    def __init__(self, kind: str, name: str, where: str) -> None:
        super().__init__(
            f"the {kind} {name} in {where}",
            "no such object",
            f"put the {kind} into the store, or name one that `list` shows",
        )
        self.kind = kind
        self.name = name


class ObjectCorrupt(StoreError):
    """An object's content does not hash to its name, or is no record of its kind.

    Attributes:
        kind, name: the record's kind and content hash.
        where: the file or key.
    """

    def __init__(self, kind: str, name: str, where: str, found: str) -> None:
        super().__init__(
            f"the {kind} {name} at {where}",
            found,
            f"restore it from a copy, or put the same {kind} again, which repairs it; "
            "until then nothing that names it can be used",
        )
        self.kind = kind
        self.name = name
        self.where = where


class PointerCorrupt(StoreError):
    """A channel's pointer cannot be trusted.

    Attributes:
        channel: the channel.
    """

    def __init__(self, channel: str, where: str, found: str) -> None:
        super().__init__(
            f"the pointer of channel {channel!r} at {where}",
            found,
            "restore it from a copy, or copy the state that was last in force from the stored "
            "pointer objects over it; the table versions themselves are untouched",
        )
        self.channel = channel


class LostRace(StoreError):
    """The pointer was moved by someone else in the meantime; nothing was changed.

    Attributes:
        channel: the channel.
        winner: the state now in force, None if there is none.
    """

    def __init__(self, channel: str, winner: Pointer | None) -> None:
        found = "no pointer at all"
        if winner is not None:
            found = (
                f"version {winner.table_version[:12]}, put in force by {winner.moved_by} at "
                f"{winner.moved_at} (move {winner.sequence}: {winner.reason})"
            )
        super().__init__(
            f"channel {channel!r} as it was read",
            found,
            "nothing was changed; compare with the version now in force, then promote again",
        )
        self.channel = channel
        self.winner = winner


class MoveRefused(StoreError):
    """A promotion or roll-back that must not happen; nothing was changed.

    Several reasons stand in the message one a line.

    Attributes:
        reasons: each reason, in words.
        can_be_forced: whether `force` would override all of them.
    """

    def __init__(
        self, what: str, reasons: tuple[str, ...], advice: str, can_be_forced: bool
    ) -> None:
        super().__init__(what, "; ".join(reasons), advice)
        if len(reasons) > 1:
            lines = "".join(f"\n  {reason}" for reason in reasons)
            self.args = (f"expected {what}, found{lines}\n{advice}",)
        self.reasons = reasons
        self.can_be_forced = can_be_forced
