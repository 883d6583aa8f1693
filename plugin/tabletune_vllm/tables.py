"""Draft-length tables as the engine looks them up: dense lists indexed by batch size.

A dense table has max_num_seqs + 1 entries; entry 0 is unused. Ranges are inclusive
``[first, last, K]`` triples (vllm/v1/spec_decode/dynamic/utils.py), read here without any of
vLLM's coercion, sorting, clamping or carrying forward.
"""

from collections.abc import Sequence
from typing import cast

from tabletune_vllm.errors import RequestError

_FORM = "ranges as a list of [first, last, K] whole numbers covering 1 to max_num_seqs"


def ranges_from_dense(dense: Sequence[int]) -> list[list[int]]:
    """The fewest inclusive ranges that say the same as a dense table."""
    ranges: list[list[int]] = []
    for batch_size in range(1, len(dense)):
        length = dense[batch_size]
        if ranges and ranges[-1][2] == length:
            ranges[-1][1] = batch_size
        else:
            ranges.append([batch_size, batch_size, length])
    return ranges


def dense_from_ranges(ranges: object, max_num_seqs: int, max_draft_length: int) -> list[int]:
    """Expand ranges strictly: whole numbers, sorted, no gap, no overlap, 1 to max_num_seqs.

    Raises:
        RequestError: naming the first entry that breaks a rule.
    """
    entries = cast(list[object], ranges) if isinstance(ranges, list) else []
    if not entries:
        raise RequestError(_FORM, short(cast(object, ranges)), "send at least one range")
    dense = [0]
    for number, entry in enumerate(entries, start=1):
        first, last, length = _triple(entry, number)
        if first != len(dense):
            expected = f"range {number} to start at {len(dense)} (no gap, no overlap, sorted)"
            raise RequestError(expected, short(entry), "correct the range")
        if not first <= last <= max_num_seqs:
            expected = f"range {number} to end from {first} to max_num_seqs {max_num_seqs}"
            raise RequestError(expected, short(entry), "correct the range")
        dense.extend([checked_length(length, max_draft_length)] * (last - first + 1))
    if len(dense) != max_num_seqs + 1:
        expected = f"the last range to end at max_num_seqs {max_num_seqs}"
        raise RequestError(expected, str(len(dense) - 1), "extend the last range")
    return dense


def checked_length(value: object, max_draft_length: int) -> int:
    """A draft length: a whole number from 0 to the engine's maximum; booleans are refused."""
    if type(value) is not int or not 0 <= value <= max_draft_length:
        raise RequestError(
            f"a draft length as a whole number from 0 to {max_draft_length}",
            short(value),
            "choose a length within the engine's maximum",
        )
    return value


def _triple(entry: object, number: int) -> tuple[int, int, int]:
    items = cast(list[object], entry) if isinstance(entry, list) else []
    if len(items) != 3 or any(type(item) is not int for item in items):
        raise RequestError(_FORM, f"entry {number}: {short(cast(object, entry))}", "correct it")
    first, last, length = cast(list[int], items)
    return first, last, length


def short(value: object) -> str:
    """A repr that fits into a message."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
