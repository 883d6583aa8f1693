"""vLLM's table format: what is refused, what is explained, what is written."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabletune.records.base import RecordError
from tabletune.records.table import Table
from tabletune.records.vllm_format import (
    MAXIMUM,
    SETTING,
    from_speculative_config,
    from_vllm,
    from_vllm_json,
    to_vllm,
)
from tests.records import strategies


def refusal(value: object, max_num_seqs: int = 8, maximum: int = 3) -> str:
    with pytest.raises(RecordError) as caught:
        from_vllm(value, max_num_seqs, maximum)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([[2, 8, 3]], "first range starts at 2, expected 1"),
        ([[1, 4, 3], [4, 8, 1]], r"entry 2 [4, 8, 1] is out of order or overlaps"),
        ([[1, 8, 3], [1, 8, 3]], r"entry 2 [1, 8, 3] is out of order or overlaps"),
        ([[5, 8, 1], [1, 4, 3]], "first range starts at 5, expected 1"),
        ([[1, 2, 1], [5, 8, 1], [3, 4, 3]], "entry 3 [3, 4, 3] is out of order"),
        ([[1, 8, 9]], "entry 1 has the draft length 9, above the configured maximum 3"),
        ([[1, 8, 3], [9, 99, 4]], "entry 2 has the draft length 4"),
        ([[1, 8, 2.9]], "entry 1 must hold integers, found 2.9 (float)"),
        ([[1, 8, 2.0]], "found 2.0 (float)"),
        ([[1.0, 8, 2]], "found 1.0 (float)"),
        ([[1, 8, True]], "found True (bool)"),
        ([[True, 8, 2]], "found True (bool)"),
        ([[1, 8, float("nan")]], "found nan (float)"),
        ([[1, 8, "2"]], "found '2' (str)"),
        ([[1, 8, None]], "found None (NoneType)"),
        ([[1, 8, [2]]], "found [2] (list)"),
        ([], "the list is empty; leave the setting out"),
        (None, "expected a list of [first, last, K], found None"),
        ({"1-16": 3}, "expected a list of [first, last, K], found {'1-16': 3}"),
        ("[[1, 8, 3]]", "expected a list"),
        ([[1, 8]], "entry 1 must be [first, last, K], found [1, 8]"),
        ([[1, 8, 3, 0, 4000]], "entry 1 must be [first, last, K]"),
        ([{"first": 1, "last": 8, "k": 3}], "entry 1 must be [first, last, K]"),
        ([7], "entry 1 must be [first, last, K], found 7"),
        (["183"], "entry 1 must be [first, last, K], found '183'"),
        ([[0, 8, 3]], "entry 1 has the range 0–8, expected 1 ≤ first ≤ last"),
        ([[-1, 8, 3]], "expected 1 ≤ first ≤ last"),
        ([[1, 4, 3], [8, 5, 1]], "entry 2 has the range 8–5"),
        ([[1, 8, -1]], "entry 1 has the draft length -1, expected 0 or more"),
    ],
)
def test_what_vllm_coerces_or_crashes_on_is_refused(value: object, reason: str) -> None:
    assert reason in refusal(value)


@pytest.mark.parametrize("limit", [0, -1, True, 2.0, "8", None, 10**9])
def test_the_limits_are_positive_integers(limit: Any) -> None:
    assert "max_num_seqs must be an integer from 1" in refusal([[1, 8, 3]], max_num_seqs=limit)
    assert f"{MAXIMUM} must be an integer from 1" in refusal([[1, 8, 3]], maximum=limit)


def test_gaps_and_the_tail_inherit_and_are_explained() -> None:
    parsed = from_vllm([[1, 2, 3], [6, 7, 1]], 9, 3)
    assert parsed.table.dense()[1:] == [3, 3, 3, 3, 3, 1, 1, 1, 1]
    assert parsed.surprises == (
        "batch sizes 3–5 are in no range and inherit 3 from the range before",
        "batch sizes 8–9 are in no range and inherit 1",
    )
    assert to_vllm(parsed.table) == [[1, 5, 3], [6, 9, 1]]


def test_ranges_at_and_beyond_the_largest_batch_are_explained() -> None:
    parsed = from_vllm([[1, 4, 3], [5, 512, 1], [600, 700, 0]], 8, 3)
    assert parsed.table.dense()[1:] == [3] * 4 + [1] * 4
    assert parsed.surprises == (
        "range 5–512 ends at max_num_seqs 8",
        "range 600–700 is never reached: max_num_seqs is 8",
    )
    parsed = from_vllm([[1, 4, 3], [20, 30, 1]], 8, 3)
    assert parsed.table.dense()[1:] == [3] * 8
    assert parsed.surprises == (
        "batch sizes 5–8 are in no range and inherit 3 from the range before",
        "range 20–30 is never reached: max_num_seqs is 8",
    )


def test_an_ordinary_table_has_no_surprises() -> None:
    parsed = from_vllm([(1, 4, 3), (5, 8, 0)], 8, 3)
    assert parsed.surprises == ()
    assert parsed.table.dense() == [0, 3, 3, 3, 3, 0, 0, 0, 0]


@settings(max_examples=300, deadline=None)
@given(strategies.tables())
def test_what_is_written_is_read_back_without_surprises(table: Table) -> None:
    written = json.dumps(to_vllm(table)).encode()
    parsed = from_vllm_json(written, table.max_num_seqs, table.max_draft_length)
    assert parsed.surprises == ()
    assert parsed.table.dense() == table.dense()


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 20) | st.floats() | st.text(max_size=3),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(anything, st.integers(1, 20), st.integers(1, 5))
def test_any_value_is_read_or_refused(value: object, max_num_seqs: int, maximum: int) -> None:
    try:
        parsed = from_vllm(value, max_num_seqs, maximum)
    except RecordError:
        return
    assert parsed.table.max_num_seqs == max_num_seqs
    assert max(parsed.table.dense()) <= maximum


@pytest.mark.parametrize("text", ["[[1, 8, NaN]]", "[[1, 8, 3]", "{", "", "[[1, 8, Infinity]]"])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match="not strict JSON"):
        from_vllm_json(text.encode(), 8, 3)


def test_a_speculative_config_without_a_table_has_none() -> None:
    assert from_speculative_config({"method": "ngram", MAXIMUM: 3}, 8) is None
    assert from_speculative_config({"method": "ngram", MAXIMUM: 3, SETTING: None}, 8) is None


def test_an_empty_table_is_not_no_table() -> None:
    with pytest.raises(RecordError, match="the list is empty"):
        from_speculative_config({MAXIMUM: 3, SETTING: []}, 8)


def test_the_table_of_a_speculative_config_is_read_against_its_maximum() -> None:
    parsed = from_speculative_config({MAXIMUM: 3, SETTING: [[1, 8, 3]]}, 8)
    assert parsed is not None
    assert parsed.table.max_draft_length == 3
    with pytest.raises(RecordError, match="above the configured maximum 2"):
        from_speculative_config({MAXIMUM: 2, SETTING: [[1, 8, 3]]}, 8)
    for maximum in (None, True, "3", 3.0):
        with pytest.raises(RecordError, match=f"{MAXIMUM} must be an integer"):
            from_speculative_config({MAXIMUM: maximum, SETTING: [[1, 8, 3]]}, 8)


def test_lengths_by_anything_else_are_refused() -> None:
    config = {MAXIMUM: 3, SETTING: [[1, 8, 3]], f"{MAXIMUM}_per_seq_len": [[1, 4000, 3]]}
    with pytest.raises(RecordError, match=r"_per_seq_len'.*batch size alone"):
        from_speculative_config(config, 8)
    with pytest.raises(RecordError, match="expected a speculative config object"):
        from_speculative_config([[1, 8, 3]], 8)
