"""Noise between cells: found where it shows, smoothed, and tables that do not follow it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.scatter import NEGLIGIBLE, non_decreasing, scatter, smooth_cells
from tabletune.core.step_time import StepTimeEstimate
from tabletune.core.surface import StepTimeSurface
from tabletune.core.table import BuildOptions, build_table, predicted_loss

from .strategies import exact

TIMES = st.lists(st.floats(1e-3, 1e-1), min_size=1, max_size=20)


def cells_of(times_s: list[float], halfwidth: float = 0.01) -> dict:
    return {(b, 1): exact(t, halfwidth) for b, t in enumerate(times_s, start=1)}


@given(TIMES)
def test_what_grows_has_no_scatter_and_comes_back_as_it_was(times) -> None:
    cells = cells_of(sorted(times))
    assert smooth_cells(cells) == (cells, 0.0)


@given(TIMES)
def test_smoothed_times_do_not_fall_and_stay_within_what_was_measured(times) -> None:
    smooth, noise = smooth_cells(cells_of(times))
    found = [smooth[b, 1].step_time_s for b in range(1, len(times) + 1)]
    assert min(times) * (1 - 1e-9) <= min(found)
    assert max(found) <= max(times) * (1 + 1e-9)
    if noise:
        assert noise >= NEGLIGIBLE
        assert all(a <= b * (1 + 1e-9) for a, b in pairwise(found))
        for one in smooth.values():
            assert one.relative_halfwidth == pytest.approx(np.hypot(0.01, noise))


@given(TIMES, st.floats(0.5, 2.0))
def test_the_unit_of_time_does_not_matter(times, factor: float) -> None:
    assert scatter([[t * factor for t in times]]) == pytest.approx(scatter([times]), abs=1e-9)


def test_rows_of_other_lengths_are_not_compared() -> None:
    assert scatter([[0.02, 0.03], [0.01, 0.02], [0.005]]) == 0
    assert scatter([]) == 0


def test_scatter_of_a_flat_row_is_the_noise_that_was_put_in() -> None:
    rng = np.random.default_rng(0)
    row = 0.05 * np.exp(rng.normal(0, 0.04, 4000))
    assert scatter([row.tolist()]) == pytest.approx(1.96 * 0.04, rel=0.05)


def test_a_sure_cell_weighs_more() -> None:
    found = non_decreasing(np.array([0.06, 0.05]), np.array([0.001, 0.2]), 0.02)
    assert found[0] == found[1] > 0.0595


def test_one_cell_off_in_a_quiet_profile_is_left_alone() -> None:
    """Some kernels are faster at a larger batch, by a little; that is kept."""
    cells = cells_of([0.010, 0.0102, 0.0101, 0.011, 0.012])
    assert smooth_cells(cells) == (cells, 0.0)


def losses(seed: int, sd: float) -> tuple[float, float, float]:
    """Mean true loss of the table of a noisy profile: as the paper, and with and without care."""
    rng = np.random.default_rng(seed)
    size, base_s, slope_s = 16, rng.uniform(0.04, 0.06), rng.uniform(6e-4, 1.8e-3)
    guesses = np.cumsum(np.cumprod(rng.uniform(0.5, 0.85, 4))) * rng.uniform(0.3, 1)
    tokens = 1 + np.concatenate([[0.0], guesses])
    true = {
        (b, k): base_s + b * (k + 1) * slope_s + 1e-3 * k
        for b in range(1, size + 1)
        for k in range(5)
    }

    def estimate(time_s: float) -> StepTimeEstimate:
        return exact(time_s, 0.015)

    truth = StepTimeSurface.from_cells({cell: estimate(t) for cell, t in true.items()})
    cells = {cell: estimate(t * float(np.exp(rng.normal(0, sd)))) for cell, t in true.items()}
    raw = StepTimeSurface.from_cells(cells)
    smooth_times, noise = smooth_cells(cells)
    smooth = StepTimeSurface.from_cells(smooth_times)
    tables = (
        build_table(raw, tokens, size),
        build_table(
            raw,
            tokens,
            size,
            BuildOptions(uncertainty=raw.relative_uncertainty, max_merge_loss=0.02),
        ),
        build_table(
            smooth,
            tokens,
            size,
            BuildOptions(uncertainty=smooth.relative_uncertainty, max_merge_loss=0.02, noise=noise),
        ),
    )
    paper, careless, careful = (float(predicted_loss(t, truth, tokens).mean()) for t in tables)
    return paper, careless, careful


@pytest.mark.parametrize("sd", [0.04, 0.08])
def test_tables_of_noisy_profiles_lose_less(sd: float) -> None:
    paper, careless, careful = np.mean([losses(seed, sd) for seed in range(100)], axis=0)
    assert careful < 0.8 * paper
    assert careful < 0.8 * careless


def test_tables_of_quiet_profiles_are_the_same() -> None:
    for seed in range(20):
        _, careless, careful = losses(seed, 0.003)
        assert careful == careless
