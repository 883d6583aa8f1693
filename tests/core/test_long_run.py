"""Step times at the tokens that a drafter schedules in the long run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.long_run import MOST_CHANGE, at_long_run, long_run_tok
from tabletune.core.step_time import StepTimeEstimate

from .strategies import exact

RATE = (0.5, 0.4, 0.3)


def line_s(tokens: float) -> float:
    """5 ms, and 1 ms a token."""
    return 0.005 + 0.001 * tokens


def measured(tokens: dict[int, float], batch_size: int = 8) -> tuple[dict, dict]:
    """Cells on `line_s` that were measured at these tokens by draft length."""
    cells = {(batch_size, k): exact(line_s(t), 0.02) for k, t in tokens.items()}
    return cells, {(batch_size, k): t for k, t in tokens.items()}


def test_the_tokens_of_a_step_by_hand() -> None:
    assert long_run_tok(4, RATE).tolist() == pytest.approx([4.0, 6.0, 7.6, 8.8])


def test_cells_move_along_the_line_that_they_lie_on() -> None:
    cells, tokens = measured({0: 8.0, 1: 13.0, 2: 17.0, 3: 18.5})
    moved = at_long_run(cells, tokens, RATE)
    for length, wanted in enumerate(long_run_tok(8, RATE)):
        assert moved[8, length].step_time_s == pytest.approx(line_s(wanted))
        assert moved[8, length].relative_halfwidth == pytest.approx(0.02)


def test_what_was_measured_at_these_tokens_stays() -> None:
    wanted = dict(enumerate(long_run_tok(8, RATE).tolist()))
    cells, tokens = measured(wanted)
    moved = at_long_run(cells, tokens, RATE)
    for at, cell in cells.items():
        assert moved[at].step_time_s == pytest.approx(cell.step_time_s)


def test_a_single_length_and_lengths_without_a_rate_stay() -> None:
    cells, tokens = measured({2: 17.0})
    assert at_long_run(cells, tokens, RATE) == cells
    cells, tokens = measured({0: 8.0, 2: 17.0})
    assert at_long_run(cells, tokens, RATE[:1])[8, 2] == cells[8, 2]


def test_times_that_fall_with_tokens_price_none() -> None:
    cells = {(8, 0): exact(0.020), (8, 2): exact(0.010)}
    assert at_long_run(cells, {(8, 0): 8.0, (8, 2): 17.0}, RATE) == cells


@given(
    st.lists(st.tuples(st.floats(1e-4, 1.0), st.floats(1.0, 500.0)), min_size=1, max_size=4),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3),
    st.integers(1, 128),
)
def test_no_step_time_changes_by_more_than_the_most(
    seen: list[tuple[float, float]], rates: list[float], batch_size: int
) -> None:
    rate = np.minimum.accumulate(rates)
    cells = {(batch_size, k): exact(time_s) for k, (time_s, _) in enumerate(seen)}
    tokens = {(batch_size, k): tok for k, (_, tok) in enumerate(seen)}
    moved = at_long_run(cells, tokens, rate)
    assert moved.keys() == cells.keys()
    for at, cell in cells.items():
        share = moved[at].step_time_s / cell.step_time_s
        assert 1 - MOST_CHANGE - 1e-9 <= share <= 1 + MOST_CHANGE + 1e-9


def test_an_implausible_cell_is_left_for_others_to_judge() -> None:
    cells = {(8, 0): StepTimeEstimate(-0.001, -0.002, 0.001, 3, 0), (8, 2): exact(0.010)}
    moved = at_long_run(cells, {(8, 0): 8.0, (8, 2): 17.0}, RATE)
    assert moved[8, 0] == cells[8, 0]
