"""Steps right before a prefill: they count by what their noise leaves."""

import numpy as np
import pytest

from tabletune.core.controller.joining import pulled_in
from tabletune.core.controller.observation import CellTimes
from tabletune.core.controller.summarise import summarise
from tests.core.controller.controller_scenes import columns, step_time_s

Row = dict[str, int | float]


def served(added_s: float, spread_s: float, probed: int = 12) -> dict[tuple[int, int], CellTimes]:
    """Cells of a second in which requests join after most steps: K=2 in force, K=1 probed.

    Before a prefill a step lasts `added_s` longer, give or take `spread_s`.
    """
    rng = np.random.default_rng(3)
    rows: list[Row] = []

    def step(length: int, joins: bool) -> None:
        slow = (added_s + spread_s * float(rng.normal())) if joins else 0.0
        usual = step_time_s(4, length) * float(np.exp(0.02 * rng.normal()))
        rows.append({"batch_size": 4, "verified_length": length, "step_time_s": usual + slow})
        if joins:
            rows.append({"batch_size": 5, "verified_length": length, "prefill_requests": 1})

    for i in range(60):
        step(2, joins=i % 5 != 0)
    for _ in range(probed):
        step(1, joins=True)
    seen = summarise(columns(rows), 0.0, 1.0, expected_step_time_s=step_time_s)
    return {(c.batch_size, c.draft_length): c for c in seen.cells}


def test_the_length_in_force_is_told_by_its_steady_steps_alone() -> None:
    cell = served(added_s=step_time_s(4, 2), spread_s=0.0)[4, 2]
    assert cell.count == 12
    assert cell.step_time_s == pytest.approx(step_time_s(4, 2), rel=0.02)


def test_a_length_that_was_always_followed_by_a_prefill_is_told_all_the_same() -> None:
    cell = served(added_s=step_time_s(4, 2), spread_s=0.0)[4, 1]
    assert 2 <= cell.count <= 12  # not more than they are
    assert cell.step_time_s == pytest.approx(step_time_s(4, 1), rel=0.03)


def test_where_the_addition_varies_its_steps_tell_nothing() -> None:
    cells = served(added_s=step_time_s(4, 2), spread_s=0.5 * step_time_s(4, 2))
    assert (4, 1) not in cells


def test_without_an_expectation_only_steady_steps_tell() -> None:
    usual: Row = {"batch_size": 4, "verified_length": 1}
    joining = [usual, {"batch_size": 5, "verified_length": 1, "prefill_requests": 1}]
    seen = summarise(columns([*joining * 20, usual]), 0.0, 1.0)
    assert [c.count for c in seen.cells] == [1]


def test_far_samples_are_pulled_in_whatever_their_sign() -> None:
    assert pulled_in(np.array([-1.0, -1.0, -1.0, 9.0])).tolist() == [-1.0, -1.0, -1.0, -0.9]
