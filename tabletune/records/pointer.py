"""The pointer of a channel: which table version is in force, and since when."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from tabletune.records.base import HASH_OR_EMPTY_PATTERN, HASH_PATTERN, Record

#: A channel's name: short, lower case, and safe as a folder's or an S3 key's part.
CHANNEL_PATTERN = r"^[a-z][a-z0-9_-]{0,62}$"


class Pointer(Record):
    """One state of a channel's pointer; the chain of `previous_pointer` is its history.

    `sequence` counts the moves of this channel from 1. `verdict` is the hash of the passing
    verdict. It is empty for a roll-back (which returns to a version that was in force before)
    and for a forced promotion that has none. `previous_version` and `previous_pointer` are
    empty in the first state only. `fingerprint` is that of the version.
    """

    KIND: ClassVar[str] = "pointer"

    channel: str = Field(pattern=CHANNEL_PATTERN)
    sequence: int = Field(ge=1)
    table_version: str = Field(pattern=HASH_PATTERN)
    fingerprint: str
    verdict: str = Field(default="", pattern=HASH_OR_EMPTY_PATTERN)
    action: Literal["promote", "rollback", "force"]
    previous_version: str = Field(default="", pattern=HASH_OR_EMPTY_PATTERN)
    previous_pointer: str = Field(default="", pattern=HASH_OR_EMPTY_PATTERN)
    moved_at: str
    moved_by: str
    reason: str

    @model_validator(mode="after")
    def _says_what_it_is(self) -> "Pointer":
        first = self.sequence == 1
        if first != (self.previous_pointer == "") or first != (self.previous_version == ""):
            raise ValueError(
                f"state {self.sequence} names previous version {self.previous_version!r} and "
                f"pointer {self.previous_pointer!r}: state 1 has neither, every later one both"
            )
        if self.action == "promote" and not self.verdict:
            raise ValueError("a promotion needs the hash of its passing verdict")
        if self.action == "rollback" and (first or self.verdict):
            raise ValueError("a roll-back is never a channel's first state and has no verdict")
        return self
