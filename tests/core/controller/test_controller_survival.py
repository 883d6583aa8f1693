"""Live survival: denominators, memory, changes of traffic."""

import dataclasses

import numpy as np
import pytest

from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.controller.survival import LiveSurvival
from tests.core.controller.controller_scenes import BAD, GOOD, counts

SETTINGS = ControllerSettings()


def seen(
    offered: tuple[int, ...], accepted: tuple[int, ...], drafted: tuple[int, ...] | None = None
) -> LiveObservation:
    nothing = LiveObservation.nothing(0.0, 1.0, len(offered))
    return dataclasses.replace(
        nothing,
        steps=1,
        request_steps=offered[0],
        offered_through=offered,
        drafted_through=drafted or offered,
        accepted_through=accepted,
    )


def drawn(
    survival: tuple[float, ...], n: int, rng: np.random.Generator, length: int = 3, groups: int = 0
) -> LiveObservation:
    """A tick of n request-steps; groups: so many requests of very different quality."""
    level = rng.random(n)
    chance = np.tile(survival[:length], (n, 1))
    if groups:
        good = np.repeat(rng.normal(0.0, 1.0, groups), -(-n // groups))[:n]
        odds = np.log(chance / (1 - chance)) + good[:, None]
        chance = 1 / (1 + np.exp(-odds))
    hits = [int((level < chance[:, i]).sum()) for i in range(length)]
    missing = (0,) * (3 - length)
    return seen((n,) * length + missing, tuple(hits) + missing)


def test_without_live_counts_the_prior_decides() -> None:
    live = LiveSurvival(counts(GOOD), SETTINGS)
    assert live.survival == pytest.approx(GOOD)
    live.update(LiveObservation.nothing(0.0, 1.0, 3), 1.0)
    assert live.survival == pytest.approx(GOOD)


def test_windows_of_k_0_change_nothing_but_the_doubt() -> None:
    live = LiveSurvival(counts(GOOD), SETTINGS)
    live.update(seen((5000, 5000, 5000), (4000, 3200, 2500)), 1.0)
    before, doubt = live.survival, live.log_acceptance_variance
    for _ in range(300):
        assert not live.update(seen((0, 0, 0), (0, 0, 0)), 1.0)
    assert live.survival == pytest.approx(before)
    assert np.all(np.isfinite(live.survival))
    assert np.all(live.log_acceptance_variance > doubt)
    assert live.unseen_s.tolist() == [300.0] * 3


def test_each_position_has_its_own_denominator_under_varying_lengths() -> None:
    live = LiveSurvival(counts((0.5, 0.25, 0.1), 1.0), SETTINGS)
    for _ in range(20):
        live.update(seen((9000, 1000, 1000), (7200, 640, 512)), 1.0)
    assert live.survival == pytest.approx((0.8, 0.64, 0.512), abs=0.01)


def test_missing_proposals_are_a_rate_of_their_own() -> None:
    live = LiveSurvival(counts(GOOD, 1.0), SETTINGS)
    for _ in range(20):
        live.update(seen((10000,) * 3, (2400, 1920, 1500), (3000, 3000, 3000)), 1.0)
    assert live.survival[0] == pytest.approx(0.8, abs=0.01)
    assert live.proposal_rate[0] == pytest.approx(0.3, abs=0.01)
    assert live.gains[0] == pytest.approx(0.24, abs=0.01)


def test_a_change_of_traffic_is_noticed_and_the_old_forgotten() -> None:
    rng = np.random.default_rng(0)
    live = LiveSurvival(counts(GOOD), SETTINGS)
    for _ in range(60):
        live.update(drawn(GOOD, 5000, rng), 1.0)
    assert live.changes == 0
    noticed = [live.update(drawn((0.5, 0.25, 0.12), 5000, rng), 1.0) for _ in range(8)]
    assert any(noticed[:2])
    assert live.survival == pytest.approx((0.5, 0.25, 0.12), abs=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_correlated_requests_are_no_change_of_traffic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    live = LiveSurvival(counts(GOOD), SETTINGS)
    for _ in range(300):
        live.update(drawn(GOOD, 4000, rng, groups=80), 1.0)
    assert live.changes <= 1
    assert live.dispersion > 3


def test_a_useless_drafter_is_seen_in_seconds() -> None:
    rng = np.random.default_rng(0)
    live = LiveSurvival(counts(GOOD), SETTINGS)
    for _ in range(30):
        live.update(drawn(GOOD, 2000, rng), 1.0)
    for _ in range(8):
        live.update(drawn(BAD, 2000, rng), 1.0)
    assert live.survival[0] == pytest.approx(0.05, abs=0.06)


def test_positions_after_the_length_in_force_keep_the_chance_given_those_before() -> None:
    live = LiveSurvival(counts(GOOD), SETTINGS)
    for _ in range(10):
        live.update(seen((5000, 0, 0), (2000, 0, 0)), 1.0)
    assert live.survival[1] / live.survival[0] == pytest.approx(0.8, abs=0.02)


def test_counts_of_other_positions_than_the_prior_has() -> None:
    live = LiveSurvival(counts(GOOD), SETTINGS)
    live.update(seen((100,) * 5, (80, 64, 50, 40, 30)), 1.0)
    live.update(seen((100,), (80,)), 1.0)
    assert live.survival.size == 3


def test_more_drafts_take_away_more_doubt_but_never_all() -> None:
    live = LiveSurvival(counts(GOOD), SETTINGS)
    few, many = live.told_by(10), live.told_by(1000)
    assert np.all((few > 0) & (few < many) & (many < live.log_acceptance_variance))
