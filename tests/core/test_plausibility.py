"""Which cells are measured again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.plausibility import PlausibilityLimits, plausibility
from tabletune.core.step_time import StepTimeEstimate

from .strategies import exact


def _grid() -> dict[tuple[int, int], StepTimeEstimate]:
    return {
        (b, k): exact(0.004 + 2e-5 * b + 3e-4 * k + 1e-5 * b * k, 0.01)
        for b in (1, 2, 4, 8, 16, 32, 64)
        for k in (0, 1, 2, 3)
    }


def test_a_sound_grid_has_no_problem_cells() -> None:
    assert plausibility(_grid()) == {}


@pytest.mark.parametrize(
    ("estimate", "word"),
    [
        (exact(-0.001), "positive"),
        (exact(0.0), "positive"),
        (StepTimeEstimate(math.nan, 0.1, 0.1, 80, 0), "positive"),
        (StepTimeEstimate(math.inf, 0.1, 0.1, 80, 0), "positive"),
        (exact(0.005, 0.06), "interval"),
        (StepTimeEstimate(0.005, 0.005, 0.005, 2, 0), "2 samples"),
        (StepTimeEstimate(0.005, math.nan, math.nan, 80, 0), "interval"),
    ],
)
def test_a_cell_bad_in_itself_is_named(estimate: StepTimeEstimate, word: str) -> None:
    cells = _grid() | {(8, 2): estimate}
    problems = plausibility(cells)
    assert list(problems) == [(8, 2)]
    assert word in problems[8, 2]


@given(st.sampled_from(sorted(_grid())), st.floats(0.2, 0.6))
def test_one_far_too_fast_cell_is_the_only_one_named(cell: tuple[int, int], factor: float) -> None:
    cells = _grid()
    cells[cell] = exact(cells[cell].step_time_s * factor, 0.01)
    problems = plausibility(cells)
    if cell == (1, 0):  # nothing smaller or shorter to contradict it
        assert problems == {}
    else:
        assert cell in problems
        assert "far below" in problems[cell]


@given(st.sampled_from(sorted(_grid())), st.floats(3, 10))
def test_one_far_too_slow_cell_is_named(cell: tuple[int, int], factor: float) -> None:
    cells = _grid()
    cells[cell] = exact(cells[cell].step_time_s * factor, 0.01)
    if cell != (64, 3):  # nothing larger or longer to contradict it
        assert cell in plausibility(cells)


def test_a_slow_cell_is_blamed_rather_than_the_many_that_contradict_it() -> None:
    cells = _grid() | {(16, 1): exact(0.02, 0.01)}
    problems = plausibility(cells)
    assert list(problems) == [(16, 1)]
    assert problems[16, 1].startswith("20.000 ms, far above the ")


def test_two_cells_against_each_other_are_both_measured_again() -> None:
    assert list(plausibility({(1, 0): exact(0.01), (2, 0): exact(0.005)})) == [(1, 0), (2, 0)]


def test_differences_within_the_intervals_and_the_tolerance_pass() -> None:
    cells = {(1, 0): exact(0.0050, 0.02), (2, 0): exact(0.0045, 0.02)}
    assert plausibility(cells) == {}
    strict = PlausibilityLimits(tolerance=0.01)
    assert plausibility(cells, strict)


def test_cells_without_a_graph_are_not_compared() -> None:
    cells = {(48, 0): exact(0.0048), (50, 0): exact(0.02), (64, 0): exact(0.0049)}
    assert (50, 0) in plausibility(cells)
    assert plausibility(cells, comparable=lambda b, k: b != 50) == {}
