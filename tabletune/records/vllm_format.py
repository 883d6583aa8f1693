"""vLLM's own table format, read strictly and written plainly.

vLLM takes ``speculative_config.num_speculative_tokens_per_batch_size``: a list of inclusive
``[first, last, K]`` triples (vllm/v1/spec_decode/dynamic/utils.py, byte-identical in 0.24 to
0.33). It coerces floats, booleans and numeric strings, sorts, clamps K, cuts ranges and
carries the last K over gaps and the tail, all silently. What is written here relies on none
of that; what is read is refused where vLLM would accept silently, and explained where it is
legal but surprising.
"""

import reprlib
from dataclasses import dataclass
from typing import cast

from tabletune.records.base import (
    MAX_BATCH_SIZE,
    MAX_DRAFT_LENGTH,
    RecordError,
    parse_strict_json,
)
from tabletune.records.table import Table, table_from_dense

KIND = "vLLM draft-length table"
#: The names in vLLM's speculative config.
MAXIMUM = "num_speculative_tokens"
SETTING = "num_speculative_tokens_per_batch_size"


@dataclass(frozen=True)
class ParsedTable:
    """A table read from vLLM's format, and what may surprise about it, in words."""

    table: Table
    surprises: tuple[str, ...]


def to_vllm(table: Table) -> list[list[int]]:
    """The triples for vLLM: dense, in order, nothing left to gaps, tails or clamping."""
    return [[part.first, part.last, part.draft_length] for part in table.ranges]


def from_vllm(value: object, max_num_seqs: int, max_draft_length: int) -> ParsedTable:
    """Read vLLM's format.

    Args:
        value: the parsed JSON value, a list of triples.
        max_num_seqs: the engine's largest batch size; vLLM cuts ranges there.
        max_draft_length: the engine's ``num_speculative_tokens``; vLLM clamps K there.

    Raises:
        RecordError: with the entry's number and what was found, where vLLM would coerce,
            sort, clamp or crash; or the two limits are not positive integers.
    """
    _check_limit("max_num_seqs", max_num_seqs, MAX_BATCH_SIZE)
    _check_limit("num_speculative_tokens", max_draft_length, MAX_DRAFT_LENGTH)
    entries = _triples(value)
    surprises: list[str] = []
    lookup = [0] * (max_num_seqs + 1)
    next_free, previous_length = 1, None
    for number, (first, last, length) in enumerate(entries, start=1):
        _check_entry(number, first, last, length, max_draft_length)
        if number == 1 and first != 1:
            raise RecordError(KIND, f"the first range starts at {first}, expected 1")
        if first < next_free:
            problem = "is out of order or overlaps the range before it"
            raise RecordError(KIND, f"entry {number} [{first}, {last}, {length}] {problem}")
        if first > next_free and next_free <= max_num_seqs and previous_length is not None:
            gap_end = min(first - 1, max_num_seqs)
            surprises.append(
                f"batch sizes {next_free}–{gap_end} are in no range and inherit "
                f"{previous_length} from the range before"
            )
            lookup[next_free : gap_end + 1] = [previous_length] * (gap_end - next_free + 1)
        if first > max_num_seqs:
            surprises.append(
                f"range {first}–{last} is never reached: max_num_seqs is {max_num_seqs}"
            )
        else:
            end = min(last, max_num_seqs)
            lookup[first : end + 1] = [length] * (end - first + 1)
            if last > max_num_seqs:
                surprises.append(f"range {first}–{last} ends at max_num_seqs {max_num_seqs}")
        next_free, previous_length = last + 1, length
    if next_free <= max_num_seqs and previous_length is not None:
        surprises.append(
            f"batch sizes {next_free}–{max_num_seqs} are in no range and inherit {previous_length}"
        )
        lookup[next_free:] = [previous_length] * (max_num_seqs - next_free + 1)
    return ParsedTable(table_from_dense(lookup, max_draft_length), tuple(surprises))


def from_vllm_json(data: bytes, max_num_seqs: int, max_draft_length: int) -> ParsedTable:
    """Read vLLM's format from JSON text; NaN and what is not strict JSON are refused too.

    Raises:
        RecordError: as `from_vllm`, or the text is not strict JSON.
    """
    return from_vllm(parse_strict_json(data, KIND), max_num_seqs, max_draft_length)


def from_speculative_config(config: object, max_num_seqs: int) -> ParsedTable | None:
    """Read the table out of an engine's ``--speculative-config``, None where it has none.

    Raises:
        RecordError: as `from_vllm`; `config` is not an object; ``num_speculative_tokens`` is
            not an integer; or the lengths depend on something besides the batch size, which
            this version cannot represent.
    """
    if not isinstance(config, dict):
        raise RecordError(KIND, f"expected a speculative config object, found {_short(config)}")
    settings = cast(dict[object, object], config)
    for name in settings:
        if str(name).startswith(f"{MAXIMUM}_per_") and name != SETTING:
            raise RecordError(
                KIND,
                f"the speculative config has {name!r}, and tables here go by batch size alone",
                f"remove {name!r}, or leave this engine to vLLM",
            )
    if settings.get(SETTING) is None:
        return None
    maximum = settings.get(MAXIMUM)
    if type(maximum) is not int:
        raise RecordError(KIND, f"{MAXIMUM} must be an integer, found {_short(maximum)}")
    return from_vllm(settings[SETTING], max_num_seqs, maximum)


def _check_limit(name: str, value: int, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise RecordError(KIND, f"{name} must be an integer from 1 to {most}, found {value!r}")


def _triples(value: object) -> list[tuple[int, int, int]]:
    if not isinstance(value, list):
        raise RecordError(KIND, f"expected a list of [first, last, K], found {_short(value)}")
    if not value:
        raise RecordError(
            KIND, "the list is empty", "leave the setting out to use a fixed draft length"
        )
    entries = cast(list[object], value)
    return [_triple(number, entry) for number, entry in enumerate(entries, start=1)]


def _triple(number: int, entry: object) -> tuple[int, int, int]:
    items = list(cast("list[object]", entry)) if isinstance(entry, (list, tuple)) else []
    if len(items) != 3:
        found = _short(cast(object, entry))
        raise RecordError(KIND, f"entry {number} must be [first, last, K], found {found}")
    for item in items:
        if type(item) is not int:  # a bool is an int to isinstance, and vLLM takes it as 0 or 1
            found = f"{_short(item)} ({type(item).__name__})"
            raise RecordError(KIND, f"entry {number} must hold integers, found {found}")
    first, last, length = cast(list[int], items)
    return first, last, length


def _check_entry(number: int, first: int, last: int, length: int, maximum: int) -> None:
    if first < 1 or last < first:
        raise RecordError(
            KIND, f"entry {number} has the range {first}–{last}, expected 1 ≤ first ≤ last"
        )
    if length < 0:
        raise RecordError(KIND, f"entry {number} has the draft length {length}, expected 0 or more")
    if length > maximum:
        raise RecordError(
            KIND,
            f"entry {number} has the draft length {length}, above the configured maximum "
            f"{maximum}, to which vLLM would clamp it silently",
            "raise num_speculative_tokens or lower the entry",
        )


def _short(value: object) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
