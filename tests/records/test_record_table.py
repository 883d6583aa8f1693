"""Tables are dense; a table version never leaves its plan, envelope or transitions."""

from typing import Any

import pytest
from hypothesis import given, settings

from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.table import Parents, Range, Table, TableVersion, table_from_dense
from tests.records import strategies


def table(*ranges: tuple[int, int, int], max_num_seqs: int = 8, maximum: int = 3) -> Table:
    return Table(
        max_num_seqs=max_num_seqs,
        max_draft_length=maximum,
        ranges=tuple(Range(first=a, last=b, draft_length=k) for a, b, k in ranges),
    )


def version(lookup: list[int], **changes: Any) -> TableVersion:
    fields: dict[str, Any] = {
        "table": table_from_dense([0, *lookup], 3),
        "plan": CapturePlan(
            graph_mode="NONE",
            capture_sizes=(),
            lengths=(0, 1, 3),
            max_draft_length=3,
            max_num_seqs=len(lookup),
            graph_count=0,
        ),
        "envelope": Envelope(
            allowed={"0": ((1, 8),), "1": ((1, 4), (6, 8)), "3": ((1, 4),)},
            forbidden_transitions=((3, 0),),
        ),
        "fingerprint": "f" * 64,
        "parents": Parents(),
        "created_at": "2026-01-01T00:00:00+00:00",
    }
    return TableVersion(**(fields | changes))


@pytest.mark.parametrize(
    ("ranges", "reason"),
    [
        ([(2, 8, 3)], "starts at 2, expected 1"),
        ([(1, 4, 3), (6, 8, 1)], "starts at 6, expected 5"),
        ([(1, 4, 3), (4, 8, 1)], "starts at 4, expected 5"),
        ([(1, 4, 3), (5, 4, 1), (5, 8, 1)], "5–4 is empty"),
        ([(1, 8, 4)], "draft length 4, above the maximum 3"),
        ([(1, 7, 3)], "end at 7, not at 8"),
        ([(1, 9, 3)], "end at 9, not at 8"),
        ([(5, 8, 1), (1, 4, 3)], "starts at 5, expected 1"),
        ([], "at least 1 item"),
        ([(1, 8, -1)], "greater than or equal to 0"),
    ],
)
def test_a_table_that_is_not_dense_is_refused(
    ranges: list[tuple[int, int, int]], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        table(*ranges)


def test_draft_length_by_batch_size() -> None:
    subject = table((1, 4, 3), (5, 8, 1))
    assert [subject.draft_length(b) for b in (1, 4, 5, 8)] == [3, 3, 1, 1]
    for outside in (0, 9, -1):
        with pytest.raises(ValueError, match=f"batch size {outside} is outside 1 … 8"):
            subject.draft_length(outside)


@settings(deadline=None)
@given(strategies.tables())
def test_dense_agrees_with_the_ranges(subject: Table) -> None:
    lookup = subject.dense()
    assert len(lookup) == subject.max_num_seqs + 1
    assert lookup[0] == 0
    assert lookup[1:] == [subject.draft_length(b) for b in range(1, subject.max_num_seqs + 1)]
    assert set(lookup[1:]) == set(subject.lengths)


@settings(deadline=None)
@given(strategies.dense_lookups())
def test_dense_and_back_with_as_few_ranges_as_possible(lookup: list[int]) -> None:
    subject = table_from_dense(lookup, max(1, *lookup))
    assert subject.dense() == lookup
    edges = sum(lookup[b] != lookup[b + 1] for b in range(1, len(lookup) - 1))
    assert len(subject.ranges) == edges + 1


@pytest.mark.parametrize("lookup", [[], [0]])
def test_a_lookup_without_batch_sizes_is_no_table(lookup: list[int]) -> None:
    with pytest.raises(ValueError, match="batch sizes 1 and up"):
        table_from_dense(lookup, 3)


def test_a_version_inside_its_envelope_is_accepted() -> None:
    assert version([3, 3, 3, 3, 0, 1, 1, 0], envelope=everywhere()).table.lengths == (0, 1, 3)
    assert version([3, 1, 1, 1, 0, 1, 1, 0]).table.draft_length(5) == 0


def everywhere() -> Envelope:
    return Envelope(allowed={str(k): ((1, 8),) for k in (0, 1, 3)})


@pytest.mark.parametrize(
    ("lookup", "reason"),
    [
        ([3, 3, 3, 3, 3, 1, 1, 1], "batch size 5 with draft length 3 leaves the envelope"),
        ([1, 1, 1, 1, 1, 1, 1, 1], "batch size 5 with draft length 1 leaves the envelope"),
        ([3, 3, 0, 0, 0, 0, 0, 0], "transition between 3 and 0 is forbidden"),
        ([0, 3, 3, 1, 0, 0, 0, 0], "transition between 0 and 3 is forbidden"),
        ([2, 2, 2, 2, 0, 0, 0, 0], r"lengths \[2\] are not in the capture plan"),
    ],
)
def test_a_version_that_leaves_its_envelope_is_refused(lookup: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        version(lookup)


def test_the_table_and_its_plan_cover_the_same_batch_sizes() -> None:
    with pytest.raises(ValueError, match="covers 7 requests, its plan 8"):
        version([0] * 7, plan=version([0] * 8).plan)


def test_the_table_and_its_plan_have_one_maximum() -> None:
    with pytest.raises(ValueError, match="maximum draft length is 4, its plan's 3"):
        version([0] * 8, table=table_from_dense([0] * 9, 4))


def test_a_latency_limit_belongs_to_its_objective() -> None:
    assert version([0] * 8, objective="throughput_under_tpot_limit", max_tpot_s=0.05)
    with pytest.raises(ValueError, match="max_tpot_s None"):
        version([0] * 8, objective="throughput_under_tpot_limit")
    with pytest.raises(ValueError, match=r"max_tpot_s 0\.05"):
        version([0] * 8, max_tpot_s=0.05)


@pytest.mark.parametrize(
    "allowed",
    [
        {"x": ((1, 2),)},
        {"01": ((1, 2),)},
        {"-1": ((1, 2),)},
        {"1": ((2, 1),)},
        {"1": ((0, 1),)},
        {"1": ((1, 4), (4, 5))},
        {"1": ((5, 6), (1, 2))},
    ],
)
def test_an_envelope_of_nonsense_is_refused(allowed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"ranges|pattern"):
        Envelope(allowed=allowed)


@pytest.mark.parametrize("pair", [(1, 1), (-1, 0), (0, -1)])
def test_a_transition_is_between_two_lengths(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no transition"):
        Envelope(allowed={}, forbidden_transitions=(pair,))


def test_envelope_lengths_are_those_allowed_somewhere() -> None:
    assert Envelope(allowed={"10": ((1, 2),), "2": ((1, 1),), "3": ()}).lengths == (2, 10)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lengths": (1, 0)}, "lengths"),
        ({"lengths": (1, 1)}, "lengths"),
        ({"lengths": (0, 4)}, "length 4 exceeds max_draft_length 3"),
        ({"capture_sizes": (4, 2)}, "capture_sizes"),
        ({"capture_sizes": (0, 2)}, "capture_sizes"),
        ({"graph_mode": "NONE"}, "captures nothing"),
        ({"graph_mode": "EAGER"}, "Input should be"),
    ],
)
def test_a_plan_of_nonsense_is_refused(changes: dict[str, Any], reason: str) -> None:
    fields: dict[str, Any] = {
        "graph_mode": "FULL",
        "capture_sizes": (2, 4),
        "lengths": (0, 3),
        "max_draft_length": 3,
        "max_num_seqs": 8,
        "graph_count": 4,
    }
    CapturePlan(**fields)
    with pytest.raises(ValueError, match=reason):
        CapturePlan(**(fields | changes))


@pytest.mark.parametrize(
    ("graph_mode", "expected"),
    [("FULL_AND_PIECEWISE", (40, 48)), ("PIECEWISE", (40, 48)), ("FULL_DECODE_ONLY", ())],
)
def test_sizes_above_the_widest_decode_step_are_for_joining_prompts(
    graph_mode: Any, expected: tuple[int, ...]
) -> None:
    plan = CapturePlan(
        graph_mode=graph_mode,
        capture_sizes=(8, 32, 40, 48),
        lengths=(0, 3),
        max_draft_length=3,
        max_num_seqs=8,
        graph_count=6,
    )
    assert plan.joining_sizes == expected
