"""The pointer of a channel: which table version is in force, and since when."""

from typing import ClassVar, Literal

from pydantic import Field

from tabletune.records.base import Record


class Pointer(Record):
    """One state of a channel's pointer; the chain of `previous_pointer` is its history.

    `sequence` counts the moves of this channel from 1. `verdict` is the hash of the passing
    verdict, empty for a roll-back (which returns to a version that passed before) and for a
    promotion that was forced.
    """

    KIND: ClassVar[str] = "pointer"

    channel: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")
    sequence: int = Field(ge=1)
    table_version: str = Field(pattern=r"^[0-9a-f]{64}$")
    fingerprint: str
    verdict: str = ""
    action: Literal["promote", "rollback", "force"]
    previous_version: str = ""
    previous_pointer: str = ""
    moved_at: str
    moved_by: str
    reason: str
