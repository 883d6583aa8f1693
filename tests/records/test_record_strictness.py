"""What is no record is refused with its reason, and nothing is coerced."""

import json
import re
from typing import Any, ClassVar

import pytest

from tabletune.records import base
from tabletune.records.base import Migration, Record, RecordError, parse_strict_json
from tabletune.records.plan import CapturePlan
from tabletune.records.step_profile import Cell, Profile
from tabletune.records.table import Range, Table

GOOD: dict[str, Any] = {
    "kind": "table",
    "format_version": 1,
    "max_num_seqs": 8,
    "max_draft_length": 3,
    "ranges": [
        {"first": 1, "last": 4, "draft_length": 3, "predicted_goodput_tok_s": 10},
        {"first": 5, "last": 8, "draft_length": 1},
    ],
}


def changed(**fields: Any) -> bytes:
    return json.dumps(GOOD | fields).encode()


def first_range(**fields: Any) -> bytes:
    return changed(ranges=[GOOD["ranges"][0] | fields, GOOD["ranges"][1]])


def refusal(data: bytes) -> str:
    with pytest.raises(RecordError) as caught:
        Table.from_json(data)
    assert caught.value.kind == "table"
    assert caught.value.advice in str(caught.value)
    return str(caught.value)


def test_the_good_table_is_good() -> None:
    assert Table.from_json(json.dumps(GOOD).encode()).draft_length(5) == 1


@pytest.mark.parametrize("value", [3.0, 2.9, True, False, "3", None, [3], 1e300])
def test_an_integer_is_only_an_integer(value: object) -> None:
    assert "ranges.0.draft_length" in refusal(first_range(draft_length=value))


@pytest.mark.parametrize("value", ["10", True, [1.0]])
def test_a_number_is_only_a_number(value: object) -> None:
    assert "predicted_goodput_tok_s" in refusal(first_range(predicted_goodput_tok_s=value))


def test_text_is_only_text() -> None:
    assert "notes.0" in refusal(changed(notes=[7]))


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_number_is_named(token: str) -> None:
    data = json.dumps(GOOD).replace("10", token, 1).encode()
    assert f"{token} is not a JSON number" in refusal(data)


def test_a_number_too_large_for_a_float_is_not_infinity() -> None:
    data = json.dumps(GOOD).replace("10", "1e999", 1).encode()
    assert "finite" in refusal(data)


def test_a_key_that_appears_twice_is_refused() -> None:
    data = json.dumps(GOOD)[:-1].encode() + b', "max_num_seqs": 9}'
    assert "'max_num_seqs' appears twice" in refusal(data)


def test_an_unknown_field_is_refused_at_any_depth() -> None:
    assert "extra_field" in refusal(changed(extra_field=1))
    assert "ranges.0.context" in refusal(first_range(context=4000))


def test_a_missing_field_is_named() -> None:
    fields = {key: value for key, value in GOOD.items() if key != "ranges"}
    assert "ranges: Field required" in refusal(json.dumps(fields).encode())


def test_another_kind_is_refused() -> None:
    assert "its kind is 'profile'" in refusal(changed(kind="profile"))
    assert "its kind is None" in refusal(b"{}")


def test_a_newer_format_asks_for_an_upgrade() -> None:
    text = refusal(changed(format_version=2))
    assert "format_version 2 is newer than 1" in text
    assert "upgrade tabletune" in text


@pytest.mark.parametrize("version", [True, 1.0, "1", None, 0, -1])
def test_a_format_version_is_a_known_integer(version: object) -> None:
    assert "format_version" in refusal(changed(format_version=version))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1]",
        b'"table"',
        b"null",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b"{'kind': 'table'}",
        b"[" * 200_000,
        b'{"kind":' * 100_000,
        b"1" * 5_000,
        json.dumps(GOOD).encode() + b"x",
        changed(notes=["\ud800"]),
        json.dumps(GOOD).replace('"last"', '"\\ud800"').encode(),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    assert "not a usable table record" in refusal(data)


def test_deep_nesting_inside_a_field_is_refused() -> None:
    deep = json.dumps(GOOD)[:-1] + ', "notes": ' + "[" * 800 + "]" * 800 + "}"
    message = refusal(deep.encode())
    assert len(message) < 1_000


def test_oversized_input_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base.json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    assert "more than" in refusal(b" " * (base.MAX_RECORD_BYTES + 1))


def test_the_size_limit_can_be_lower() -> None:
    assert parse_strict_json(b"[1]", "list", max_bytes=3) == [1]
    with pytest.raises(RecordError, match="it has 4 bytes, more than 3"):
        parse_strict_json(b"[1] ", "list", max_bytes=3)


def test_what_no_reader_would_accept_is_not_written() -> None:
    samples = (0.12345678901234567,) * 1_000_000
    cell = Cell(batch_size=1, draft_length=0, samples_s=samples, scheduled_tok=1.0, context_tok=1.0)
    profile = Profile(
        fingerprint="f",
        plan="p",
        method="client",
        step_kind="constant",
        prompt_tok=1,
        context_tok=1,
        cells=(cell,),
        wall_time_s=1.0,
        measured_at="2026-01-01T00:00:00+00:00",
    )
    with pytest.raises(RecordError, match="keep fewer samples"):
        profile.to_json()


def test_nan_that_got_past_validation_is_not_written() -> None:
    part = Range(first=1, last=1, draft_length=0)
    broken = part.model_copy(update={"predicted_goodput_tok_s": float("nan")})
    table = Table(max_num_seqs=1, max_draft_length=1, ranges=(part,))
    with pytest.raises(RecordError, match="cannot be written"):
        table.model_copy(update={"ranges": (broken,)}).to_json()


def test_the_message_stays_short_whatever_was_sent() -> None:
    assert len(refusal(changed(max_num_seqs="9" * 100_000))) < 1_000
    wrong = [{"first": "x", "last": "x", "draft_length": "x"}] * 5_000
    assert re.search(r"; and 1499\d more;", refusal(changed(ranges=wrong)))


def test_records_are_frozen() -> None:
    table = Table.from_json(json.dumps(GOOD).encode())
    with pytest.raises(ValueError, match="frozen"):
        table.max_num_seqs = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_a_table_of_a_few_bytes_cannot_ask_for_all_memory() -> None:
    huge = 10**15
    ranges = [{"first": 1, "last": huge, "draft_length": 1}]
    assert "65536" in refusal(changed(max_num_seqs=huge, ranges=ranges))
    with pytest.raises(ValueError, match="65536"):
        CapturePlan(
            graph_mode="NONE",
            capture_sizes=(),
            lengths=(0,),
            max_draft_length=1,
            max_num_seqs=huge,
            graph_count=0,
        )


class Speed(Record):
    """A record whose first format kept milliseconds."""

    KIND: ClassVar[str] = "speed"
    FORMAT_VERSION: ClassVar[int] = 3
    MIGRATIONS: ClassVar[dict[int, Migration]] = {
        1: lambda fields: {"step_time_s": fields["step_time_ms"] / 1000},
        2: lambda fields: fields | {"note": "lifted"},
    }

    step_time_s: float
    note: str


def test_older_formats_are_lifted_one_step_at_a_time() -> None:
    old = b'{"kind": "speed", "format_version": 1, "step_time_ms": 5}'
    lifted = Speed.from_json(old)
    assert lifted == Speed(step_time_s=0.005, note="lifted")
    assert json.loads(lifted.to_json())["format_version"] == 3
    middle = b'{"kind": "speed", "format_version": 2, "step_time_s": 0.005}'
    assert Speed.from_json(middle) == lifted


@pytest.mark.parametrize("fields", ['"step_time_ms": "5"', '"other": 1'])
def test_a_damaged_old_record_is_refused_like_any_other(fields: str) -> None:
    old = f'{{"kind": "speed", "format_version": 1, {fields}}}'.encode()
    with pytest.raises(RecordError, match="no valid format_version 1"):
        Speed.from_json(old)


def test_what_a_migration_makes_is_validated_too() -> None:
    old = b'{"kind": "speed", "format_version": 2, "step_time_s": "fast"}'
    with pytest.raises(RecordError, match="step_time_s"):
        Speed.from_json(old)
