"""Counts and the survival estimated from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.counts import SurvivalCounts
from tabletune.core.errors import CoreError
from tabletune.core.isotonic import non_increasing
from tabletune.core.survival import (
    blend,
    blend_proposal_rate,
    conditional_acceptance,
    proposal_rate,
    survival,
    survival_interval,
)

from .strategies import draft_counts, survivals


def _is_survival(values: np.ndarray) -> bool:
    return bool(
        np.all(np.isfinite(values))
        and np.all((values >= 0) & (values <= 1))
        and np.all(np.diff(values) <= 0)
    )


@given(draft_counts())
def test_survival_is_non_increasing_in_the_unit_interval(counts: SurvivalCounts) -> None:
    assert _is_survival(survival(counts))
    assert _is_survival(proposal_rate(counts))


def test_the_denominator_is_the_drafts_that_reached_the_position() -> None:
    """Half the steps draft 1, half draft 3, all with S = .8, .6, .4: both halves agree."""
    short = SurvivalCounts([1000, 0, 0], [800, 0, 0], 1000)
    long = SurvivalCounts([1000, 1000, 1000], [800, 600, 400], 1000)
    assert survival(short + long).tolist() == pytest.approx([0.8, 0.6, 0.4])


def test_survival_is_unbiased_under_varying_draft_length() -> None:
    truth, rng = np.array([0.7, 0.5, 0.3]), np.random.default_rng(3)
    steps = []
    for _ in range(40_000):
        length = int(rng.integers(0, 4))
        accepted = int(np.count_nonzero(rng.random() < truth))  # one draw: nested events
        steps.append((length, length, min(accepted, length)))
    estimate = survival(SurvivalCounts.from_drafts(steps, 3))
    assert np.abs(estimate - truth).max() < 0.015


def test_positions_never_drafted_go_on_at_the_last_conditional_acceptance() -> None:
    counts = SurvivalCounts([100, 100, 0, 0], [80, 40, 0, 0], 100)
    assert survival(counts).tolist() == pytest.approx([0.8, 0.4, 0.2, 0.1])


def test_a_pooled_last_position_is_not_extrapolated_as_certain() -> None:
    """Isotonic pooling makes c_2 = 1; the extrapolation then uses the average instead."""
    counts = SurvivalCounts([100, 10, 0], [50, 9, 0], 100)
    values = survival(counts)
    assert values[1] == values[0]
    assert values[2] == pytest.approx(values[1] ** 1.5)


def test_no_observation_predicts_nothing_from_speculation() -> None:
    assert survival(SurvivalCounts.empty(3)).tolist() == [0, 0, 0]
    assert proposal_rate(SurvivalCounts.empty(2)).tolist() == [0, 0]


def test_proposal_rate_counts_only_steps_that_offered_the_position() -> None:
    """At draft length 1 in half the steps, position 2 was offered in the other half only."""
    steps = [(1, 1, 0)] * 50 + [(2, 2, 0)] * 30 + [(2, 0, 0)] * 20
    counts = SurvivalCounts.from_drafts(steps, 2)
    assert proposal_rate(counts).tolist() == pytest.approx([0.8, 0.6])


def test_steps_without_a_proposal_do_not_lower_survival() -> None:
    steps = [(2, 2, 1)] * 10 + [(2, 0, 0)] * 90
    assert survival(SurvivalCounts.from_drafts(steps, 2)).tolist() == [1.0, 0.0]


@given(draft_counts(), draft_counts())
def test_adding_counts_pools_them(one: SurvivalCounts, other: SurvivalCounts) -> None:
    total = one + other
    assert total == other + one
    assert total.request_steps == one.request_steps + other.request_steps
    assert total.drafted_through.sum() == one.drafted_through.sum() + other.drafted_through.sum()


@given(draft_counts(), st.floats(0.01, 1))
def test_fading_leaves_the_estimate_alone(counts: SurvivalCounts, factor: float) -> None:
    np.testing.assert_allclose(survival(counts.faded(factor)), survival(counts), atol=1e-9)


@given(draft_counts(), st.lists(st.floats(0, 1), max_size=60))
def test_fading_again_and_again_stays_valid(counts: SurvivalCounts, factors: list[float]) -> None:
    for factor in factors:
        counts = counts.faded(factor) + counts.faded(0.3)
    assert _is_survival(survival(counts))


@pytest.mark.parametrize(
    ("drafted", "accepted", "steps", "offered", "subject"),
    [
        ([3], [4], 5, None, "accepted_through"),
        ([3, 4], [1, 1], 5, None, "drafted_through"),
        ([3, 2], [1], 5, None, "accepted_through"),
        ([3], [1], 2, None, "drafted_through"),
        ([3], [1], 2, [4], "request_steps"),
        ([float("nan")], [1], 2, None, "drafted_through"),
        ([-1], [-1], 2, None, "drafted_through"),
        ([], [], 2, None, "drafted_through"),
        ([1], [1], float("inf"), None, "request_steps"),
    ],
)
def test_impossible_counts_are_refused(drafted, accepted, steps, offered, subject) -> None:
    with pytest.raises(CoreError) as refused:
        SurvivalCounts(drafted, accepted, steps, offered)
    assert refused.value.subject == subject


def test_counts_cannot_be_changed_afterwards() -> None:
    source = np.array([3.0])
    counts = SurvivalCounts(source, [1], 5)
    source[0] = 99
    assert counts.drafted_through.tolist() == [3.0]
    with pytest.raises(ValueError, match="read-only"):
        counts.drafted_through[0] = 7


@given(survivals())
def test_conditional_acceptance_multiplies_back(values: np.ndarray) -> None:
    np.testing.assert_allclose(np.cumprod(conditional_acceptance(values)), values, atol=1e-12)


@given(survivals(), st.floats(0, 1e6), draft_counts())
def test_a_blend_is_a_survival(prior: np.ndarray, weight: float, counts: SurvivalCounts) -> None:
    assert _is_survival(blend(prior, weight, counts))
    assert _is_survival(blend_proposal_rate(prior, weight, counts))


@given(survivals(), st.floats(0.1, 1e6))
def test_without_counts_the_prior_stays(prior: np.ndarray, weight: float) -> None:
    np.testing.assert_allclose(
        blend(prior, weight, SurvivalCounts.empty(prior.size)), prior, atol=1e-9
    )


@given(draft_counts())
def test_without_weight_the_counts_decide(counts: SurvivalCounts) -> None:
    """On the positions observed; beyond them both extrapolate."""
    seen = counts.drafted_through > 0
    mixed = blend(np.ones(counts.max_draft_length), 0.0, counts)
    np.testing.assert_allclose(mixed[seen], survival(counts)[seen], atol=1e-9)


@given(survivals(size=3), st.floats(0, 1e4), st.floats(1, 1e4))
def test_a_prior_that_agrees_with_the_counts_changes_nothing(
    truth: np.ndarray, weight: float, drafts: float
) -> None:
    counts = SurvivalCounts(np.full(3, drafts), truth * drafts, drafts)
    np.testing.assert_allclose(blend(truth, weight, counts), truth, atol=1e-9)


def test_a_position_not_drafted_lately_follows_the_ones_before_it() -> None:
    """S_1 halves in live traffic; S_2, not drafted, halves with it."""
    counts = SurvivalCounts([1e9, 0], [0.4e9, 0], 1e9)
    assert blend([0.8, 0.4], 100, counts).tolist() == pytest.approx([0.4, 0.2])


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, truth, hits = np.random.default_rng(1), np.array([0.7, 0.3]), 0
    for _ in range(1000):
        accepted = np.sort(rng.binomial(60, truth))[::-1]
        low, high = survival_interval(SurvivalCounts([60, 60], accepted, 60)).T
        hits += int(np.count_nonzero((low <= truth) & (truth <= high)))
    assert 0.92 < hits / 2000 < 0.98


@given(draft_counts())
def test_the_interval_holds_the_raw_rate(counts: SurvivalCounts) -> None:
    interval = survival_interval(counts)
    seen = counts.drafted_through > 0
    raw = counts.accepted_through[seen] / counts.drafted_through[seen]
    assert np.all(interval[seen, 0] <= raw + 1e-12)
    assert np.all(raw <= interval[seen, 1] + 1e-12)
    assert np.all(interval[~seen] == [0.0, 1.0])


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 100)), min_size=1, max_size=8))
def test_isotonic_regression_keeps_the_weighted_sum(pairs: list[tuple[float, float]]) -> None:
    values, weights = (np.array(column) for column in zip(*pairs, strict=True))
    fitted = non_increasing(values, weights)
    assert np.all(np.diff(fitted) <= 0)
    assert fitted @ weights == pytest.approx(values @ weights)
