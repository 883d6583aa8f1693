"""Differences between tables: complete, minimal, and in words."""

from itertools import pairwise

from hypothesis import given, settings

from tabletune.records.diff import diff_rows, diff_words, plan_diff_words, version_diff_words
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.table import Parents, Table, TableVersion, table_from_dense
from tests.records import strategies


def table(*lengths: int, maximum: int = 3) -> Table:
    return table_from_dense([0, *lengths], maximum)


def at(subject: Table | None, batch_size: int) -> int | None:
    if subject is None or batch_size > subject.max_num_seqs:
        return None
    return subject.draft_length(batch_size)


@settings(max_examples=200, deadline=None)
@given(strategies.tables(), strategies.tables())
def test_the_rows_hold_every_difference_and_nothing_else(old: Table, new: Table) -> None:
    rows = diff_rows(old, new)
    by_batch_size = {
        b: (row.old_length, row.new_length) for row in rows for b in range(row.first, row.last + 1)
    }
    for batch_size in range(1, max(old.max_num_seqs, new.max_num_seqs) + 1):
        lengths = (at(old, batch_size), at(new, batch_size))
        assert by_batch_size.pop(batch_size, (None, None)) == (
            lengths if lengths[0] != lengths[1] else (None, None)
        )
    assert by_batch_size == {}
    for left, right in pairwise(rows):
        touching = left.last + 1 == right.first
        same = (left.old_length, left.new_length) == (right.old_length, right.new_length)
        assert left.last < right.first
        assert not (touching and same)


@settings(deadline=None)
@given(strategies.tables())
def test_a_table_does_not_differ_from_itself(subject: Table) -> None:
    assert diff_rows(subject, subject) == ()
    assert diff_words(subject, subject) == []


@settings(deadline=None)
@given(strategies.tables())
def test_without_an_old_table_every_batch_size_is_new(subject: Table) -> None:
    rows = diff_rows(None, subject)
    assert [row.first for row in rows] == [1, *(row.last + 1 for row in rows[:-1])]
    assert rows[-1].last == subject.max_num_seqs
    assert all(row.old_length is None for row in rows)


def test_rows_and_words() -> None:
    old, new = table(3, 3, 1, 1), table(3, 1, 1, 0, 0, 0, maximum=4)
    assert [row.as_list() for row in diff_rows(old, new)] == [
        [2, 2, 3, 1],
        [4, 4, 1, 0],
        [5, 6, None, 0],
    ]
    assert diff_words(old, new) == [
        "largest batch size: 4 → 6",
        "maximum draft length: 3 → 4",
        "batch size 2: draft length 3 → 1",
        "batch size 4: draft length 1 → 0",
        "batch sizes 5–6: draft length none → 0",
    ]
    assert diff_words(None, table(2, 2)) == [
        "there was no table before",
        "batch sizes 1–2: draft length none → 2",
    ]


def plan(sizes: tuple[int, ...], lengths: tuple[int, ...], **changes: object) -> CapturePlan:
    fields = {
        "graph_mode": "FULL_DECODE_ONLY" if sizes else "NONE",
        "capture_sizes": sizes,
        "lengths": lengths,
        "max_draft_length": 3,
        "max_num_seqs": 4,
        "graph_count": len(sizes),
    }
    return CapturePlan.model_validate(fields | changes)


def version(subject: Table, under: CapturePlan, **changes: object) -> TableVersion:
    fields = {
        "table": subject,
        "plan": under,
        "envelope": Envelope(allowed={str(k): ((1, 4),) for k in under.lengths}),
        "fingerprint": "f" * 64,
        "parents": Parents(),
        "created_at": "2026-01-01T00:00:00+00:00",
    }
    return TableVersion.model_validate(fields | changes)


def test_a_plan_differs_in_what_an_engine_is_started_with() -> None:
    old, new = plan((1, 2, 4), (0, 3)), plan((1, 2, 8, 9, 10, 11, 12, 13, 14), (0, 1, 3))
    assert plan_diff_words(old, old) == []
    assert plan_diff_words(old, new) == [
        "draft lengths captured: [0, 3] → [0, 1, 3]",
        "capture sizes: 3 → 9 (removed 4; added 8, 9, 10, 11, 12, 13 and 1 more)",
    ]
    assert plan_diff_words(old, plan((), (0, 3)))[0] == "graph mode: FULL_DECODE_ONLY → NONE"


def test_a_version_differs_in_table_start_objective_and_fingerprint() -> None:
    old = version(table(3, 3, 0, 0), plan((1, 2, 4), (0, 3)))
    new = version(
        table(3, 0, 0, 0),
        plan((), (0, 3)),
        fingerprint="e" * 64,
        objective="throughput_under_tpot_limit",
        max_tpot_s=0.05,
    )
    assert version_diff_words(old, old) == []
    assert version_diff_words(old, new) == [
        "batch size 2: draft length 3 → 0",
        "engine start, graph mode: FULL_DECODE_ONLY → NONE",
        "engine start, capture sizes: 3 → 0 (removed 1, 2, 4; added none)",
        "objective: throughput → throughput_under_tpot_limit (50 ms)",
        "fingerprint: ffffffffffff → eeeeeeeeeeee",
    ]
    assert version_diff_words(None, new)[0] == "there was no table before"
