"""From engine steps to an observation."""

import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tabletune.core.controller.observation import (
    BatchTotals,
    CellTimes,
    LiveObservation,
    Stall,
)
from tabletune.core.controller.summarise import summarise
from tabletune.core.errors import CoreError
from tests.core.controller.controller_scenes import columns, step_time_s


def test_steps_are_counted_for_the_cell_that_they_verify() -> None:
    seen = summarise(
        columns(
            [
                {"batch_size": 4, "verified_length": 2},
                {"batch_size": 4, "verified_length": 2},
                {"batch_size": 4, "verified_length": 2, "draft_length": 3},  # drafts another one
                {"batch_size": 4, "verified_length": 2, "prefill_requests": 1},
                {"batch_size": 4, "verified_length": 2, "drafted_requests": 3},  # not all full
                {"batch_size": 4, "verified_length": 2, "undisturbed": False},
                {"batch_size": 4, "verified_length": -1, "draft_length": 2},  # unknown
                {"batch_size": 5, "verified_length": 0},
            ]
        ),
        0.0,
        1.0,
    )
    assert [(c.batch_size, c.draft_length, c.count) for c in seen.cells] == [(4, 2, 2), (5, 0, 1)]
    assert seen.cells[0].step_time_s == pytest.approx(step_time_s(4, 2))
    assert [(b.batch_size, b.steps, b.steady) for b in seen.batches] == [(4, 6, 2), (5, 1, 1)]
    assert seen.batches[0].decode_s < seen.batches[0].seconds
    assert seen.last_batch_size == 5


def test_a_step_right_before_a_prefill_tells_neither_a_step_time_nor_a_stall() -> None:
    """On an H200 taking in a request doubled the interval of the step before its prefill."""
    usual = {"batch_size": 4, "verified_length": 1}
    joining = [{**usual, "step_time_s": 0.1}, {**usual, "batch_size": 5, "prefill_requests": 1}]
    steps = columns([usual, *joining, usual, *joining, usual])
    seen = summarise(steps, 0.0, 1.0, expected_step_time_s=step_time_s)
    assert [(c.batch_size, c.count) for c in seen.cells] == [(4, 3)]
    assert seen.cells[0].step_time_s == pytest.approx(step_time_s(4, 1))
    assert seen.stalls == ()


def test_a_far_step_hardly_moves_the_cell() -> None:
    rows = [{"batch_size": 4, "verified_length": 1, "step_time_s": 0.005}] * 9
    seen = summarise(columns([*rows, {**rows[0], "step_time_s": 5.0}]), 0.0, 1.0)
    assert seen.cells[0].step_time_s < 0.0052


def test_positions_count_only_where_the_length_reached_them() -> None:
    seen = summarise(
        columns(
            [
                {"batch_size": 4, "verified_length": 1, "accepted_through": [3, 0, 0]},
                {"batch_size": 4, "verified_length": 3, "accepted_through": [2, 1, 1]},
                {"batch_size": 4, "verified_length": 0},
            ]
        ),
        0.0,
        1.0,
    )
    assert seen.request_steps == 8
    assert seen.offered_through == seen.drafted_through == (8, 4, 4)
    assert seen.accepted_through == (5, 1, 1)


def test_a_window_without_drafts_counts_nothing() -> None:
    seen = summarise(columns([{"batch_size": 4, "verified_length": 0}] * 5), 0.0, 1.0)
    assert (seen.request_steps, seen.offered_through) == (0, (0, 0, 0))


def test_requests_without_a_proposal_are_offered_but_not_drafted() -> None:
    seen = summarise(
        columns([{"batch_size": 8, "verified_length": 2, "drafted_requests": 3}]),
        0.0,
        1.0,
        full_drafts=False,
    )
    assert seen.offered_through == (8, 8, 0)
    assert seen.drafted_through == (3, 3, 0)
    assert [c.count for c in seen.cells] == [1]  # such steps are what the cell is like


def test_stalls_are_told_against_what_is_expected_of_the_cell() -> None:
    rows = [{"batch_size": 4, "verified_length": 1}] * 3
    slow = {**rows[0], "step_time_s": 0.1}
    steps = columns([*rows, slow, rows[0], {**slow, "prefill_requests": 1}])
    seen = summarise(steps, 0.0, 1.0, expected_step_time_s=step_time_s)
    assert seen.stalls == (Stall(4, 1, 0.1),)
    assert summarise(steps, 0.0, 1.0).stalls == ()
    assert summarise(steps, 0.0, 1.0, expected_step_time_s=lambda b, k: None).stalls == ()


def test_no_step_is_an_observation_too() -> None:
    none = columns([{"batch_size": 1, "verified_length": 0}])
    empty = type(none)(**{n: v[:0] for n, v in vars(none).items()})
    assert summarise(empty, 2.0, 3.0) == LiveObservation.nothing(2.0, 3.0, 3)


numbers = st.integers(0, 10**9)
seconds = st.floats(0, 1e9, allow_nan=False)


@given(
    st.builds(
        LiveObservation,
        from_s=seconds,
        to_s=seconds,
        steps=numbers,
        last_batch_size=numbers,
        waiting_requests=numbers,
        cells=st.lists(
            st.builds(CellTimes, numbers, numbers, numbers, seconds, seconds), max_size=3
        ).map(tuple),
        batches=st.lists(
            st.builds(BatchTotals, numbers, numbers, seconds, numbers, numbers, seconds, numbers),
            max_size=3,
        ).map(tuple),
        request_steps=numbers,
        offered_through=st.tuples(numbers, numbers),
        drafted_through=st.tuples(numbers, numbers),
        accepted_through=st.tuples(numbers, numbers),
        stalls=st.lists(st.builds(Stall, numbers, numbers, seconds), max_size=2).map(tuple),
    )
)
def test_an_observation_comes_back_exactly_from_json(observation: LiveObservation) -> None:
    text = json.dumps(observation.to_dict())
    assert LiveObservation.from_dict(json.loads(text)) == observation


def test_another_format_or_a_part_is_refused() -> None:
    whole = LiveObservation.nothing(0.0, 1.0, 2).to_dict()
    with pytest.raises(CoreError, match="format"):
        LiveObservation.from_dict(whole | {"format": 99})
    del whole["cells"]
    with pytest.raises(CoreError, match="to_dict"):
        LiveObservation.from_dict(whole)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3), st.booleans()), min_size=1))
def test_the_parts_add_up(steps: list[tuple[int, int, bool]]) -> None:
    rows: list[dict[str, int | float]] = [
        {"batch_size": b, "verified_length": k, "prefill_requests": int(p and b > 1)}
        for b, k, p in steps
    ]
    seen = summarise(columns(rows), 0.0, 1.0)
    assert seen.steps == len(steps) == sum(b.steps for b in seen.batches)
    assert sum(c.count for c in seen.cells) == sum(b.steady for b in seen.batches)
    expected_s = sum(step_time_s(b, k) for b, k, _ in steps)
    assert seen.busy_s == pytest.approx(expected_s)
    assert np.all(np.diff(seen.offered_through) <= 0)
