"""Residuals of live over profiled step times."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tabletune.core.controller.residuals import CellRatio, StepTimeResiduals
from tabletune.core.controller.settings import ControllerSettings

LENGTHS = (0, 1, 2, 3)


def residuals(size: int = 64) -> StepTimeResiduals:
    return StepTimeResiduals(size, LENGTHS, ControllerSettings())


def cell(b: int, k: int, factor: float, steps: int = 100) -> CellRatio:
    return (b, k), steps, float(np.log(factor)), 0.02


def fed(cells: list[CellRatio], ticks: int = 10, size: int = 64) -> StepTimeResiduals:
    found = residuals(size)
    for _ in range(ticks):
        found.update(cells, 1.0)
    return found


def test_nothing_seen_is_nothing_wrong() -> None:
    found = residuals()
    assert np.all(found.log_ratio() == 0)
    assert found.factor(7, 2) == 1
    rows = np.array([3, 9])
    variance = found.contrast_variance(rows, np.array([0, 2]))
    assert variance[0, 0] == variance[1, 2] == 0
    assert variance[0, 1] == pytest.approx(2 * 0.12**2)


def test_an_unseen_length_takes_over_what_is_known_at_its_batch_size() -> None:
    found = fed([cell(16, 2, 1.3)])
    assert found.factor(16, 2) == pytest.approx(1.3, rel=0.01)
    assert 1.05 < found.factor(16, 0) < 1.3
    assert 1.05 < found.factor(15, 2) < 1.3
    assert 1.0 <= found.factor(1, 0) < found.factor(12, 0)


def test_a_shift_of_all_lengths_does_not_make_one_look_better() -> None:
    """Context growth: K=2 is in force and seen all the time, K=3 was probed at the start."""
    found = fed([cell(16, 2, 1.0), cell(16, 3, 1.0)], 3)
    for i in range(120):
        found.update([cell(16, 2, 1.0 + 0.003 * i)], 1.0)
    assert found.factor(16, 2) == pytest.approx(1.357, rel=0.02)
    assert found.factor(16, 3) / found.factor(16, 2) == pytest.approx(1.0, abs=0.05)


def test_a_length_that_is_wrong_is_told_from_the_others() -> None:
    found = fed([cell(16, 0, 1.0), cell(16, 2, 1.4), cell(16, 3, 1.0)])
    assert found.factor(16, 2) == pytest.approx(1.4, rel=0.02)
    assert found.factor(16, 3) == pytest.approx(1.0, rel=0.02)
    assert found.factor(16, 1) == pytest.approx(1.0, abs=0.2)
    own = np.array([2])
    variance = found.contrast_variance(np.array([15]), own)[0]
    assert variance[3] < 0.01**2 < variance[1]


def test_one_tick_of_a_busy_host_is_forgotten() -> None:
    found = fed([cell(16, 2, 1.0), cell(16, 3, 1.0)], 20)
    found.update([cell(16, 2, 3.0)], 1.0)
    for _ in range(20):
        found.update([cell(16, 2, 1.0)], 1.0)
    assert found.factor(16, 2) == pytest.approx(1.0, abs=0.05)


def test_what_is_not_seen_any_more_goes_back_to_the_profile() -> None:
    found = fed([cell(16, 2, 1.3), cell(16, 3, 1.3)])
    for _ in range(100):
        found.update([], 60.0)
    assert found.factor(16, 2) == pytest.approx(1.0, abs=0.03)


def test_a_profile_that_proves_right_is_doubted_less() -> None:
    right, wrong = residuals(), residuals()
    rng = np.random.default_rng(0)
    for b in range(2, 14):
        right.update([cell(b, k, 1.0) for k in LENGTHS], 1.0)
        wrong.update([cell(b, k, float(rng.uniform(0.6, 1.4))) for k in LENGTHS], 1.0)
    row, own = np.array([50]), np.array([0])
    fresh = residuals().contrast_variance(row, own)[0, 1]
    assert right.contrast_variance(row, own)[0, 1] < 0.3 * fresh
    assert wrong.contrast_variance(row, own)[0, 1] > 0.6 * fresh


cells = st.lists(
    st.tuples(
        st.integers(1, 64), st.sampled_from(LENGTHS), st.floats(0.3, 3.0), st.integers(1, 200)
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(cells, st.floats(0.0, 100.0)), min_size=1, max_size=12))
def test_whatever_is_seen_the_belief_stays_finite_and_sensible(
    ticks: list[tuple[list[tuple[int, int, float, int]], float]],
) -> None:
    found = residuals()
    for seen, elapsed_s in ticks:
        found.update([cell(*one) for one in seen], elapsed_s)
    assert np.all(np.abs(found.log_ratio()) < 3)
    rows, own = np.arange(64), np.zeros(64, dtype=np.int64)
    variance = found.contrast_variance(rows, own)
    assert np.all(np.isfinite(variance))
    assert np.all((variance >= 0) & (variance < 2.01 * 0.12**2))
    bears = found.contrast_covariance(20, rows, own)
    assert bears[20] == pytest.approx(variance[20], abs=1e-7)
    # Cauchy and Schwarz: no batch size tells more about another than both vary.
    assert np.all(bears**2 <= variance * variance[20] + 1e-7)


def test_more_batch_sizes_than_are_kept() -> None:
    found = residuals(512)
    for b in range(1, 513):
        found.update([cell(b, 1, 1.2), cell(b, 2, 1.2)], 0.05)
    assert found.factor(500, 1) == pytest.approx(1.2, rel=0.03)
    assert found.factor(450, 3) > 1.05


def test_lengths_and_batch_sizes_that_are_not_known_are_ignored() -> None:
    found = fed([cell(16, 7, 2.0), cell(99, 2, 2.0), cell(0, 2, 2.0)])
    assert np.all(found.log_ratio() == 0)


def test_what_only_one_length_showed_is_no_comparison() -> None:
    live = residuals()
    for _ in range(5):  # K=1 in force is slow at 40 requests, for whatever reason
        live.update([cell(40, 1, 1.35)], 1.0)
    rows, own = np.array([39]), np.array([1])
    assert live.compared(rows, own).tolist() == [[False, True, False, False]]
    for _ in range(3):  # and so is K=2, as a probe shows
        live.update([cell(40, 1, 1.35), cell(40, 2, 1.35, steps=12)], 1.0)
    assert live.compared(rows, own).tolist() == [[False, True, True, False]]
