"""Which batch sizes are measured."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.errors import CoreError
from tabletune.core.goodput import expected_tokens
from tabletune.core.grid import graph_boundaries, initial_grid, refine
from tabletune.core.surface import StepTimeSurface

from .strategies import exact, stairs

TOKENS = expected_tokens([0.72, 0.50, 0.34, 0.23])


@given(st.integers(1, 5000))
def test_the_initial_grid_spans_everything_without_wide_holes(size: int) -> None:
    grid = initial_grid(size)
    assert grid[0] == 1
    assert grid[-1] == size
    assert grid == sorted(set(grid))
    assert all(b <= 2 * a for a, b in pairwise(grid))
    assert len(grid) <= 2 + 2 * size.bit_length()


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(CoreError):
        initial_grid(0)


@given(st.sets(st.integers(1, 600), min_size=1), st.integers(2, 200), st.integers(0, 12))
def test_boundaries_lie_on_both_sides_of_a_tall_stair(sizes, max_batch, max_points) -> None:
    padded = stairs(sorted(sizes))
    chosen = graph_boundaries(padded, [0, 2], max_batch, max_points)
    assert len(chosen) <= max_points
    assert all(1 <= b <= max_batch for b in chosen)

    def tall(b: int) -> bool:
        heights = [
            above - below
            for k in (0, 2)
            if (below := padded(b, k)) is not None and (above := padded(b + 1, k)) is not None
        ]
        return max(heights, default=0) >= 8

    assert all((b + 1 in chosen and tall(b)) or (b - 1 in chosen and tall(b - 1)) for b in chosen)


def test_the_tallest_stairs_come_first() -> None:
    padded = stairs([16, 32, 128, 512])
    assert graph_boundaries(padded, [0], 512, max_points=2) == [128, 129]
    assert graph_boundaries(padded, [0], 512, max_points=5) == [32, 33, 128, 129]


def test_exact_sizes_make_no_stairs() -> None:
    assert graph_boundaries(stairs(range(1, 600)), [0, 1, 3], 128) == []


def _surface(time, grid, lengths=(0, 2)) -> StepTimeSurface:
    return StepTimeSurface.from_cells({(b, k): exact(time(b, k)) for b in grid for k in lengths})


def test_it_measures_where_the_best_length_changes() -> None:
    """T = 4 ms + 20 us a request, longer drafts dearer by 70 us: equal at b = 102."""
    grid = initial_grid(256)
    surface = _surface(lambda b, k: 0.004 + b * (2e-5 + (7e-5 if k else 0)), grid)
    crossed = [
        b
        for b in range(1, 257)
        if 1 / surface.step_time_s(b, 0) > TOKENS[2] / surface.step_time_s(b, 2)
    ]
    assert 96 < crossed[0] < 128
    assert refine(surface, TOKENS, grid, max_points=1) == [crossed[0]]


def test_it_measures_both_sides_of_the_stair_behind_a_jump() -> None:
    def time(b: int, k: int) -> float:
        return 0.004 if b * (k + 1) <= 100 else 0.007

    grid, padded = [1, 2, 4, 8, 16, 32, 64, 96, 128], stairs([8, 16, 32, 64, 100, 200, 400])
    surface = StepTimeSurface.from_cells({(b, 0): exact(time(b, 0)) for b in grid}, padded)
    assert refine(surface, TOKENS, grid, padded) == [100, 101]
    line = StepTimeSurface.from_cells({(b, 0): exact(time(b, 0)) for b in grid})
    assert refine(line, TOKENS, grid) == [112]


def test_a_straight_line_needs_nothing_more() -> None:
    grid = initial_grid(128)
    surface = _surface(lambda b, k: 0.004 + 1e-5 * b * (k + 1), grid, lengths=(0,))
    assert refine(surface, TOKENS, grid) == []


@given(
    st.lists(st.floats(1e-3, 1e-1), min_size=27, max_size=27),
    st.integers(0, 6),
    st.sampled_from([None, stairs([8, 32, 64, 100, 512]), stairs(range(8, 513, 8))]),
)
def test_new_points_are_new_few_and_inside(times, max_points, padded) -> None:
    grid = [1, 2, 4, 8, 16, 32, 64, 96, 128]
    cells = {(b, k): exact(times[i * 3 + k]) for i, b in enumerate(grid) for k in range(3)}
    surface = StepTimeSurface.from_cells(cells, padded)
    points = refine(surface, TOKENS, grid, padded, max_points)
    assert len(points) <= max_points
    assert points == sorted(set(points))
    assert not set(points) & set(grid)
    assert all(any(surface.covered(b, k) for k in range(3)) for b in points)
