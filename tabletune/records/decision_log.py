"""The decision log of one engine: JSON lines with all that the controller saw and decided.

The first line is the header; then come ticks, promotions and notes in the order in which they
happened. Everything that decides is in it, so a log replays without any other file. A log is
rotated: each file of a run has a header of its own and its `file_number`, from 0.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, cast

from pydantic import Field, ValidationError, model_validator

from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.promoted import Promoted
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.errors import CoreError
from tabletune.records.base import MAX_BATCH_SIZE, Facts, RecordError, parse_strict_json
from tabletune.records.trace_promoted import PromotedFacts

KIND: Final = "decision log"
FORMAT_VERSION: Final = 1
#: A longer line is refused. The longest are headers: 1024 batch sizes × 8 lengths are 180 kB.
MAX_LINE_BYTES: Final = 4 * 2**20

Length = Annotated[int, Field(ge=0)]
#: The event of a note that tells another mode, which is its detail; replay follows it.
MODE_EVENT: Final = "mode"
_ROWS: Final = ("cells", "batches", "stalls")  # of an observation: lists of numbers


class DecisionFacts(Facts):
    """A `Decision` in plain values."""

    kind: Literal["hold", "swap", "explore", "revert", "off"]
    reason: str
    lengths: tuple[Length, ...] | None
    probe: tuple[tuple[Length, int], ...]
    predicted_gain: float
    evidence: dict[str, float]

    def decision(self) -> Decision:
        """The core's object."""
        return Decision(
            self.kind, self.reason, self.lengths, self.probe, self.predicted_gain, self.evidence
        )


class Line(Facts):
    """What every line but the header has: `now_s` is the controller's clock, `unix_s` is for
    people."""

    LINE: ClassVar[str] = ""

    now_s: float
    unix_s: float


class TickLine(Line):
    """One tick: what was seen and what was decided."""

    LINE: ClassVar[str] = "tick"

    observation: dict[str, Any]
    decision: DecisionFacts

    @model_validator(mode="after")
    def _observation_is_one(self) -> "TickLine":
        try:
            # What does not come back the same was coerced: refuse it.
            same = _plain(self.seen().to_dict()) == _plain(self.observation)
        except CoreError as error:
            raise ValueError(str(error)) from error
        rows = (row for name in _ROWS for row in self.observation[name])
        if not same or any(type(value) not in (int, float) for row in rows for value in row):
            raise ValueError("the observation has values of other types than it must have")
        return self

    def seen(self) -> LiveObservation:
        """The core's object."""
        return LiveObservation.from_dict(self.observation)


class PromoteLine(Line):
    """Another table version is followed from here on."""

    LINE: ClassVar[str] = "promote"

    promoted: PromotedFacts
    decision: DecisionFacts


class NoteLine(Line):
    """Something besides, such as ``suspended`` by a pin, or ``refused``; see `MODE_EVENT` too."""

    LINE: ClassVar[str] = "note"

    event: str
    detail: str


class Header(Facts):
    """The first line of a file: the engine, and the controller as it was made.

    The controller's random numbers come from ``numpy.random.default_rng(seed)``. `boot_lengths`
    is the boot table, [b-1] for batch size b. `promoted` is what was followed when the file was
    opened. A file whose `file_number` is not 0 begins in the middle of a run.
    """

    format_version: Literal[1]
    run_id: str
    file_number: int = Field(ge=0)
    plugin_version: str
    vllm_version: str
    channel: str
    mode: str
    seed: int = Field(ge=0)
    boot_lengths: tuple[Length, ...] = Field(min_length=1, max_length=MAX_BATCH_SIZE)
    settings: dict[str, int | float]
    promoted: PromotedFacts
    opened_unix_s: float

    def controller_settings(self) -> ControllerSettings:
        """Raises RecordError for settings that this version does not have."""
        try:
            return ControllerSettings(**cast(dict[str, Any], self.settings))
        except (TypeError, CoreError) as error:
            advice = "replay it with the version that wrote it"
            raise RecordError(KIND, f"its settings are others ({error})", advice) from error


Entry = TickLine | PromoteLine | NoteLine
_ENTRIES: Final[Mapping[str, type[Entry]]] = {
    kind.LINE: kind for kind in (TickLine, PromoteLine, NoteLine)
}


@dataclass(frozen=True)
class Trace:
    """One file of a log. `torn`: its last line was cut off, as by a crash, and is left out."""

    header: Header
    entries: tuple[Entry, ...]
    torn: bool = False


def encode_header(
    *,
    run_id: str,
    file_number: int,
    plugin_version: str,
    vllm_version: str,
    channel: str,
    mode: str,
    seed: int,
    boot_lengths: Iterable[int],
    settings: ControllerSettings,
    promoted: Promoted,
    opened_unix_s: float,
) -> bytes:
    """The header's line; see `Header`."""
    header = Header(
        format_version=FORMAT_VERSION,
        run_id=run_id,
        file_number=file_number,
        plugin_version=plugin_version,
        vllm_version=vllm_version,
        channel=channel,
        mode=mode,
        seed=seed,
        boot_lengths=tuple(boot_lengths),
        settings=asdict(settings),
        promoted=PromotedFacts.of(promoted),
        opened_unix_s=opened_unix_s,
    )
    return _encoded("header", header.model_dump(mode="json"))


def encode_tick(
    now_s: float, unix_s: float, observation: LiveObservation, decision: Decision
) -> bytes:
    """A tick's line."""
    seen, decided = observation.to_dict(), decision.to_dict()
    times = {"now_s": now_s, "unix_s": unix_s}
    return _encoded("tick", {**times, "observation": seen, "decision": decided})


def encode_promote(now_s: float, unix_s: float, promoted: Promoted, decision: Decision) -> bytes:
    """The line of a promotion that the controller was told of."""
    facts = PromotedFacts.of(promoted).model_dump(mode="json")
    times = {"now_s": now_s, "unix_s": unix_s}
    return _encoded("promote", {**times, "promoted": facts, "decision": decision.to_dict()})


def encode_note(now_s: float, unix_s: float, event: str, detail: str = "") -> bytes:
    """A note's line; notes are for people and are not replayed."""
    return _encoded("note", {"now_s": now_s, "unix_s": unix_s, "event": event, "detail": detail})


def parse_trace(lines: Iterable[bytes]) -> Trace:
    """Read one file of a log, strictly; only a last line without its end may be broken.

    Raises:
        RecordError: naming the line that is not as it must be.
    """
    header: Header | None = None
    entries: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        try:
            kind, fields = _fields(line)
            if header is None:
                if kind != "header":
                    raise RecordError(KIND, f"it begins with {kind!r}, not with a header")
                header = _header(fields)
            elif kind in _ENTRIES:
                entries.append(_validated(_ENTRIES[kind], fields))
            else:
                raise RecordError(KIND, f"{kind!r} is no kind of line")
        except RecordError as error:
            if header is not None and not line.endswith(b"\n"):  # only the last line can lack it
                return Trace(header, tuple(entries), torn=True)
            raise RecordError(KIND, f"line {number}: {error.reason}", error.advice) from error
    if header is None:
        raise RecordError(KIND, "it is empty", "name the file that TABLETUNE_TRACE names")
    return Trace(header, tuple(entries))


def _fields(line: bytes) -> tuple[str, dict[str, Any]]:
    fields = parse_strict_json(line, KIND, MAX_LINE_BYTES)
    if not isinstance(fields, dict):
        raise RecordError(KIND, f"it is a JSON {type(fields).__name__}, not an object")
    found = cast(dict[str, Any], fields)
    return str(found.pop("line", None)), found


def _header(fields: dict[str, Any]) -> Header:
    version = fields.get("format_version")
    if type(version) is int and version > FORMAT_VERSION:
        reason = f"its format_version {version} is newer than {FORMAT_VERSION}"
        raise RecordError(KIND, reason, "upgrade tabletune to read it")
    return _validated(Header, fields)


AnyFacts = TypeVar("AnyFacts", bound=Facts)


def _validated(kind: type[AnyFacts], fields: dict[str, Any]) -> AnyFacts:
    try:
        return kind.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        raise RecordError(KIND, f"{where}: {first['msg']}") from error


def _plain(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _encoded(kind: str, fields: dict[str, Any]) -> bytes:
    text = json.dumps({"line": kind, **fields}, separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"
