"""Interpolation between measured step times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.errors import CoreError, NotCoveredError
from tabletune.core.surface import StepTimeSurface

from .strategies import exact, stairs

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def _cells(k: int, times: dict[int, float]):
    return {(b, k): exact(t, 0.01) for b, t in times.items()}


@given(
    st.dictionaries(st.integers(1, 64), st.floats(1e-3, 1e-1), min_size=1),
    st.integers(1, 64),
    st.integers(0, 3),
    st.sampled_from([None, stairs(SIZES), stairs(range(8, 513, 8)), stairs((64, 256))]),
)
def test_it_never_leaves_its_neighbours(times, b, k, padded) -> None:
    surface = StepTimeSurface.from_cells(_cells(k, times), padded)
    if b > max(times):
        assert not surface.covered(b, k)
        return
    below = max((m for m in times if m <= b), default=min(times))
    above = min(m for m in times if m >= b)
    time = surface.step_time_s(b, k)
    low, high = sorted((times[below], times[above]))
    assert low * (1 - 1e-12) <= time <= high * (1 + 1e-12)
    assert surface.relative_uncertainty(b, k) >= 0.01 - 1e-12


@given(st.dictionaries(st.integers(1, 64), st.floats(1e-3, 1e-1), min_size=1))
def test_measured_cells_come_back_exactly(times: dict[int, float]) -> None:
    for padded in (None, stairs(SIZES)):
        surface = StepTimeSurface.from_cells(_cells(1, times), padded)
        assert {b: surface.step_time_s(b, 1) for b in times} == times
        assert surface.measured(1) == tuple(sorted(times))


def test_without_graphs_it_is_a_line() -> None:
    surface = StepTimeSurface.from_cells(_cells(0, {10: 0.01, 20: 0.03}))
    assert surface.step_time_s(15, 0) == pytest.approx(0.02)


def test_the_jump_sits_at_the_graph_boundary() -> None:
    surface = StepTimeSurface.from_cells(_cells(0, {24: 0.004, 48: 0.006}), stairs(SIZES))
    assert [surface.step_time_s(b, 0) for b in (24, 32, 33, 48)] == [0.004, 0.004, 0.006, 0.006]


def test_on_one_stair_it_is_a_line_in_the_batch_size() -> None:
    surface = StepTimeSurface.from_cells(_cells(0, {34: 0.004, 64: 0.007}), stairs(SIZES))
    assert surface.step_time_s(44, 0) == pytest.approx(0.005)


def test_an_unmeasured_tall_stair_takes_the_worse_side() -> None:
    surface = StepTimeSurface.from_cells(_cells(0, {16: 0.004, 64: 0.006}), stairs(SIZES))
    assert surface.step_time_s(20, 0) == 0.006
    assert surface.relative_uncertainty(20, 0) > 0.3


def test_fine_stairs_are_a_line_in_padded_tokens() -> None:
    surface = StepTimeSurface.from_cells(
        _cells(0, {64: 0.004, 96: 0.008}), stairs(range(8, 257, 8))
    )
    assert surface.step_time_s(80, 0) == pytest.approx(0.006)
    assert surface.step_time_s(73, 0) == surface.step_time_s(80, 0)


@pytest.mark.parametrize("padded", [None, stairs(range(8, 257, 8))])
def test_uncertainty_grows_away_from_the_measurements(padded) -> None:
    """Even where both neighbours agree."""
    surface = StepTimeSurface.from_cells(_cells(0, {64: 0.005, 128: 0.005}), padded)
    here = [surface.relative_uncertainty(b, 0) for b in (64, 66, 72, 80, 88)]
    assert here == sorted(here)
    assert here[0] == pytest.approx(0.01)
    assert here[-1] > here[0]


def test_nothing_is_covered_beyond_the_measurements() -> None:
    surface = StepTimeSurface.from_cells(_cells(2, {4: 0.004}))
    assert not surface.covered(5, 2)
    assert not surface.covered(4, 1)
    assert not surface.covered(0, 2)
    with pytest.raises(NotCoveredError) as refused:
        surface.step_time_s(5, 2)
    assert (refused.value.batch_size, refused.value.draft_length) == (5, 2)
    assert "largest batch size measured" in str(refused.value)
    with pytest.raises(NotCoveredError):
        surface.relative_uncertainty(5, 2)


def test_below_the_smallest_measured_its_time_is_the_bound() -> None:
    surface = StepTimeSurface.from_cells(_cells(0, {8: 0.004}))
    assert surface.step_time_s(1, 0) == 0.004
    assert surface.relative_uncertainty(1, 0) > surface.relative_uncertainty(8, 0)


def test_cells_without_a_graph_are_neither_covered_nor_used() -> None:
    def padded(b: int, k: int) -> int | None:
        return None if b == 50 else b

    surface = StepTimeSurface.from_cells(_cells(0, {48: 0.0048, 50: 0.02, 64: 0.005}), padded)
    assert not surface.covered(50, 0)
    assert surface.step_time_s(49, 0) < 0.005
    with pytest.raises(NotCoveredError, match="no CUDA graph"):
        surface.step_time_s(50, 0)


@pytest.mark.parametrize(
    ("cell", "time"), [((0, 1), 0.1), ((1, -1), 0.1), ((1, 1), 0.0), ((1, 1), float("nan"))]
)
def test_impossible_cells_are_refused(cell, time) -> None:
    with pytest.raises(CoreError):
        StepTimeSurface.from_cells({cell: exact(time)})
