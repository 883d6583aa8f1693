"""What every record shares: strict parsing, a size cap, canonical JSON, a content hash, migrations.

A record is data that was written or sent. It is frozen, refuses unknown fields, coerces
nothing, and names its format version. Three things that are easily mixed up are kept apart:
`format_version` (how to read it), `content_hash` (which one it is) and, in the pointer only,
`sequence` (how many promotions came before).
"""

import hashlib
import json
import reprlib
from collections.abc import Callable
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, ValidationError

#: Larger input is refused before it is parsed. A profile with raw step times is the largest
#: record: 5 lengths × 40 batch sizes × 400 samples × about 12 bytes is 1 MB.
MAX_RECORD_BYTES = 16 * 2**20

#: The largest batch size and draft length that a record may name. vLLM's own defaults are a
#: hundredth of it; without a bound a table of a few bytes could ask for any amount of memory.
MAX_BATCH_SIZE = 65_536
MAX_DRAFT_LENGTH = 1_024

HASH_PATTERN = r"^[0-9a-f]{64}$"
HASH_OR_EMPTY_PATTERN = r"^([0-9a-f]{64})?$"

Migration = Callable[[dict[str, Any]], dict[str, Any]]


class RecordError(ValueError):
    """A record cannot be read.

    Attributes:
        kind: the kind of record that was expected, such as ``profile``.
        reason: what was found, in words.
        advice: what to do about it.
    """

    def __init__(self, kind: str, reason: str, advice: str = "") -> None:
        self.kind = kind
        self.reason = reason
        self.advice = advice or f"check where this {kind} came from, or make it again"
        super().__init__(f"not a usable {kind} record: {reason}; {self.advice}")


def _refuse_constant(token: str) -> Any:
    raise ValueError(f"{token} is not a JSON number")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} appears twice")
        result[key] = value
    return result


def parse_strict_json(data: bytes, kind: str, max_bytes: int = MAX_RECORD_BYTES) -> Any:
    """Parse JSON without NaN, Infinity, duplicate keys or more than `max_bytes` bytes.

    Raises:
        RecordError: the data is too large, not UTF-8, or not such JSON.
    """
    if len(data) > max_bytes:
        raise RecordError(kind, f"it has {len(data)} bytes, more than {max_bytes}")
    try:
        return json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            object_pairs_hook=_refuse_duplicates,
        )
    except (ValueError, RecursionError) as error:
        raise RecordError(kind, f"it is not strict JSON ({error})") from error


class Facts(BaseModel):
    """A frozen, strict part of a record."""

    # ser_json_inf_nan: a NaN that got in past validation (model_copy) must fail at writing,
    # not turn into null.
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants"
    )


class Record(Facts):
    """A frozen, strict, versioned record with canonical JSON and a content hash."""

    KIND: ClassVar[str] = ""
    FORMAT_VERSION: ClassVar[int] = 1
    #: format version -> function that lifts its fields to the next version.
    MIGRATIONS: ClassVar[dict[int, Migration]] = {}

    def to_json(self) -> bytes:
        """Canonical JSON: keys sorted, no spaces, UTF-8, with `kind` and `format_version`.

        Raises:
            RecordError: it is larger than any reader accepts, or holds a value that JSON
                cannot (possible only past validation, through `model_copy`).
        """
        try:
            fields = self.model_dump(mode="json")
            fields |= {"kind": self.KIND, "format_version": self.FORMAT_VERSION}
            text = json.dumps(
                fields, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
            )
            data = text.encode("utf-8")
        except ValueError as error:  # also UnicodeEncodeError and pydantic's serialisation errors
            raise RecordError(self.KIND, f"it cannot be written as JSON ({error})") from error
        if len(data) > MAX_RECORD_BYTES:
            raise RecordError(
                self.KIND,
                f"it would have {len(data)} bytes, more than the {MAX_RECORD_BYTES} that are read",
                "keep fewer samples in it",
            )
        return data

    @property
    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON, in hex: the record's name in a store."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Parse canonical or pretty JSON of this kind, lifting older formats.

        Raises:
            RecordError: wrong kind, unknown or newer format version, or any field not as it
                must be. Nothing is coerced.
        """
        fields: object = parse_strict_json(data, cls.KIND)
        if not isinstance(fields, dict):
            raise RecordError(cls.KIND, f"it is a JSON {type(fields).__name__}, not an object")
        found = cast(dict[str, Any], fields).copy()
        kind = found.pop("kind", None)
        if kind != cls.KIND:
            raise RecordError(cls.KIND, f"its kind is {kind!r}")
        version = found.pop("format_version", None)
        if type(version) is not int:
            raise RecordError(cls.KIND, f"its format_version is {version!r}, not an integer")
        if version > cls.FORMAT_VERSION:
            raise RecordError(
                cls.KIND,
                f"its format_version {version} is newer than {cls.FORMAT_VERSION}",
                "upgrade tabletune to read it",
            )
        found = cls._lifted(found, version)
        try:
            # Through JSON again, so that strict mode reads arrays as tuples but coerces nothing.
            # allow_nan: a number such as 1e999 is read as infinity; it must get as far as the
            # validation, whose message names the field.
            return cls.model_validate_json(json.dumps(found))
        except ValidationError as error:
            raise RecordError(cls.KIND, _first_problems(error)) from error
        except RecursionError as error:
            raise RecordError(cls.KIND, "it is nested too deeply") from error

    @classmethod
    def _lifted(cls, fields: dict[str, Any], version: int) -> dict[str, Any]:
        """The fields of format `version` as those of the current one."""
        while version < cls.FORMAT_VERSION:
            migrate = cls.MIGRATIONS.get(version)
            if migrate is None:
                raise RecordError(cls.KIND, f"no way to read its format_version {version}")
            try:
                fields = migrate(fields)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                reason = f"it is no valid format_version {version} ({error!r})"
                raise RecordError(cls.KIND, reason) from error
            version += 1
        return fields


def _first_problems(error: ValidationError, most: int = 3) -> str:
    """The first problems as `field: found VALUE, MESSAGE`."""
    problems = [
        f"{'.'.join(str(part) for part in item['loc']) or 'record'}: {item['msg']}"
        + ("" if item["type"] == "missing" else f" (found {_short(item.get('input'))})")
        for item in error.errors(include_url=False)[:most]
    ]
    more = error.error_count() - most
    return "; ".join(problems) + (f"; and {more} more" if more > 0 else "")


def _short(value: object, most: int = 60) -> str:
    text = reprlib.repr(value)  # bounded in depth and size, whatever was sent
    return text if len(text) <= most else text[:most] + "…"
