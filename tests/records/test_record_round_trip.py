"""Every record survives writing and reading, and its bytes and hash are stable."""

import hashlib
import json
import pathlib

import pytest
from hypothesis import given, settings

from tabletune.records.base import Record
from tabletune.store.check import KINDS
from tests.records import strategies

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "records"
BY_KIND = {kind.KIND: kind for kind in KINDS}


@settings(max_examples=300, deadline=None)
@given(strategies.any_record)
def test_what_is_written_is_read_back(record: Record) -> None:
    data = record.to_json()
    again = type(record).from_json(data)
    assert again == record
    assert again.to_json() == data
    assert again.content_hash == record.content_hash == hashlib.sha256(data).hexdigest()


@settings(max_examples=100, deadline=None)
@given(strategies.any_record)
def test_pretty_json_in_any_order_is_the_same_record(record: Record) -> None:
    fields = json.loads(record.to_json())
    shuffled = json.dumps(dict(reversed(fields.items())), indent=4, ensure_ascii=True)
    assert type(record).from_json(shuffled.encode()).content_hash == record.content_hash


@settings(max_examples=100, deadline=None)
@given(strategies.any_record)
def test_canonical_json_names_kind_and_format_and_has_no_spaces(record: Record) -> None:
    fields = json.loads(record.to_json())
    assert fields["kind"] == record.KIND
    assert fields["format_version"] == record.FORMAT_VERSION
    plain = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert plain.encode() == record.to_json()


def test_every_kind_has_a_golden_file_of_its_first_format() -> None:
    assert {path.stem for path in GOLDEN.glob("*.v1.json")} == {f"{kind}.v1" for kind in BY_KIND}


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_the_first_format_stays_readable(kind: str) -> None:
    data = (GOLDEN / f"{kind}.v1.json").read_bytes()
    assert json.loads(data)["format_version"] == 1
    record = BY_KIND[kind].from_json(data)
    # Nothing may get lost on the way to the current format.
    assert BY_KIND[kind].from_json(record.to_json()) == record


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_canonical_bytes_are_stable(kind: str) -> None:
    """A table version promoted today must have the same name next year."""
    data = (GOLDEN / f"{kind}.v{BY_KIND[kind].FORMAT_VERSION}.json").read_bytes()
    record = BY_KIND[kind].from_json(data)
    assert record.to_json() == data
    expected = json.loads((GOLDEN / "hashes.json").read_text())
    assert record.content_hash == expected[kind]
