"""The pointer of a channel: which table version is in force, and since when."""

import json
from typing import Any, ClassVar, Final, Literal, cast

from pydantic import Field, model_validator

from tabletune.records.base import (
    HASH_OR_EMPTY_PATTERN,
    HASH_PATTERN,
    Migration,
    Record,
    RecordError,
    parse_strict_json,
)

#: A channel's name: short, lower case, and safe as a folder's or an S3 key's part.
CHANNEL_PATTERN = r"^[a-z][a-z0-9_-]{0,62}$"

#: Before what is signed, so that a signature can never be taken for one of something else.
SIGNED_AS: Final = b"tabletune pointer\n"


class Pointer(Record):
    """One state of a channel's pointer; the chain of `previous_pointer` is its history.

    `sequence` counts the moves of this channel from 1. `verdict` is the hash of the passing
    verdict. It is empty for a roll-back (which returns to a version that was in force before)
    and for a forced promotion that has none. `previous_version` and `previous_pointer` are
    empty in the first state only. `fingerprint` is that of the version.

    `signed_by` and `signature` are empty, or name the key and hold its Ed25519 signature of
    all the other fields in base64 (store/signing.py). The version's hash is among them, and
    every parent's hash is in the version, so one signature covers all that an engine uses.
    """

    KIND: ClassVar[str] = "pointer"
    FORMAT_VERSION: ClassVar[int] = 2
    MIGRATIONS: ClassVar[dict[int, Migration]] = {1: dict}  # 2 added signatures, empty by default

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
    signed_by: str = Field(default="", pattern=r"^([0-9a-f]{16})?$")
    signature: str = Field(default="", pattern=r"^([A-Za-z0-9+/]{86}==)?$")

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
        if (self.signed_by == "") != (self.signature == ""):
            raise ValueError(
                f"signed_by {self.signed_by!r} with signature {self.signature!r}: a signed "
                "pointer has both, another neither"
            )
        return self


def signed_part(data: bytes) -> bytes:
    """What a signature of a pointer's stored bytes is over: everything but the signature.

    Made from the bytes, not from the record, so that a signature outlives a change of format.

    Raises:
        RecordError: the bytes are no JSON object.
    """
    fields: object = parse_strict_json(data, Pointer.KIND)
    if not isinstance(fields, dict):
        raise RecordError(Pointer.KIND, f"it is a JSON {type(fields).__name__}, not an object")
    unsigned = {**cast(dict[str, Any], fields), "signature": ""}
    text = json.dumps(
        unsigned, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )
    return SIGNED_AS + text.encode("utf-8")
