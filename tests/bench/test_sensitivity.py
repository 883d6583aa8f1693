"""What wrong or little evidence costs a table, on the recorded profile and on cases by hand."""

from typing import Any

import numpy as np
import pytest

from bench import sensitivity as command
from bench.controller_cases import PROFILE
from bench.evaluation.sensitivity import (
    SIZE,
    SURVIVALS,
    Truth,
    builders,
    by_drafting_error,
    by_effort,
    by_survival_error,
    limits_crossed,
    measured_survival,
    scaled_survival,
    surface_from,
    thinned,
    truth_of,
    with_survival,
)
from tabletune.records.step_profile import Profile


@pytest.fixture(scope="module")
def profile() -> Profile:
    return Profile.from_json(PROFILE.read_bytes())


@pytest.fixture(scope="module")
def truth(profile: Profile) -> Truth:
    return truth_of(profile, SURVIVALS["mid"])


def test_the_loss_of_a_table_by_hand(profile: Profile) -> None:
    times = np.full((SIZE + 1, 2), 0.01)
    times[:, 1] = 0.012
    by_hand = Truth(profile, times, (0.5,))
    loss = by_hand.loss([1] * (SIZE - 1) + [0])
    assert loss[:-1].max() == 0
    assert loss[-1] == pytest.approx(1 - (1 / 0.01) / (1.5 / 0.012))


def test_no_error_costs_next_to_nothing_and_a_large_one_much(truth: Truth) -> None:
    right, wrong = by_survival_error(truth, [0.0, -0.6])
    assert right["mean"] < 0.005
    assert wrong["worst"] > 0.2
    right, wrong = by_drafting_error(truth, [0.0, 3.0])
    assert right["mean"] < 0.005
    assert wrong["worst"] > 0.2


def test_bounded_merges_bound_the_loss(truth: Truth) -> None:
    every = [builders(with_survival(truth, survival)) for survival in SURVIVALS.values()]
    for found in every:
        assert found["merge up to 1 %"]["worst"] < 0.021  # a near tie of 2 % at most, noise aside
        assert found["merge up to 1 %"]["mean"] <= found["merge at any price"]["mean"]
    assert max(found["merge at any price"]["worst"] for found in every) > 0.03


def test_limits_are_crossed_on_both_sides() -> None:
    rows = [{"error": e, "worst": abs(e) / 10} for e in (-0.4, -0.2, 0.0, 0.2, 0.4)]
    assert limits_crossed(rows, (0.01, 0.03, 0.05)) == {
        "0.01": [-0.2, 0.2],
        "0.03": [-0.4, 0.4],
        "0.05": [None, None],
    }


def test_believed_survival_stays_a_survival() -> None:
    assert scaled_survival((0.9, 0.8), 1.0) == (1.0, 1.0)
    assert scaled_survival((0.5, 0.0, 0.0), 0.1) == pytest.approx((0.55, 0.0, 0.0))


def test_counted_survival_is_that_of_the_traffic() -> None:
    rng = np.random.default_rng(1)
    draws = np.array([measured_survival((0.7, 0.4, 0.4), 200, rng) for _ in range(400)])
    assert draws.mean(axis=0) == pytest.approx([0.7, 0.4, 0.4], abs=0.006)
    assert draws[:, 0].std() == pytest.approx(np.sqrt(0.7 * 0.3 / 200), rel=0.15)
    assert (np.diff(draws, axis=1) <= 0).all()


def test_a_thinned_profile(profile: Profile) -> None:
    cells = thinned(profile, (1, 64), 3, np.random.default_rng(0))
    assert {(c.batch_size, c.draft_length) for c in cells} == {
        (b, k) for b in (1, 64) for k in range(5)
    }
    for cell in cells:
        assert len(cell.samples_s) == len(cell.sample_context_tok) == 3
    assert surface_from(cells, profile) is not None
    nothing = surface_from([], profile)
    assert nothing is None or nothing.draft_lengths == ()


def test_less_effort_costs_more_than_all_of_it(truth: Truth, profile: Profile) -> None:
    rng = np.random.default_rng(2)
    little = by_effort(truth, (1, 128), 2, 30, 5, rng)
    much = by_effort(truth, profile.batch_sizes, 30, 3700, 5, rng)
    assert little["worst"] > much["worst"]
    assert little["step_time_s"] < much["step_time_s"]
    seconds = sum(float(truth.times[b].sum()) for b in profile.batch_sizes) * 30
    assert much["step_time_s"] == pytest.approx(seconds + 3700 / 64 * truth.times[64, 4], rel=1e-3)
    assert by_effort(truth, (), 2, 30, 2, rng)["without_table"] == 2


def test_the_file_that_the_command_writes(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ERRORS", (-0.5, 0.0, 0.5))
    monkeypatch.setattr(command, "SPREADS", (0.0, 0.2))
    monkeypatch.setattr(command, "GRIDS", {"2 batch sizes": (1, 128)})
    monkeypatch.setattr(command, "TRIED_STEPS", (1000,))
    found: dict[str, Any] = command.compute(profile, draws=1, max_merge_loss=0.01)
    assert set(SURVIVALS) < set(found)
    assert found["mid"]["survival"]["crossed"]["0.05"] == [-0.5, 0.5]
    assert [row["batch_sizes"] for row in found["mid"]["grid"]] == [2, 21]
    assert found["max_merge_loss"] == 0.01
