"""Harvest and drift: what a fleet's snapshots say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabletune.core.counts import SurvivalCounts
from tabletune.core.survival import proposal_rate, survival
from tabletune.maintain.drift import DriftReport, drift
from tabletune.maintain.harvest import as_fixed_length, harvest, pool
from tabletune.maintain.policies import DriftPolicy
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.snapshot import LiveSnapshot
from tests.maintain.live import snapshot
from tests.maintain.scenes import NOW, at
from tests.store.world import FINGERPRINT, upgraded

POLICY = DriftPolicy(survival=0.10, step_time=0.15, least_request_steps=1000)
NAME = FINGERPRINT.identity
PRIOR = AcceptancePrior(
    fingerprint=NAME,
    draft_length=3,
    source="measured",
    prompt_count=160,
    prompts_hash="p",
    counts=PositionCounts(
        drafted_through=(1000, 1000, 1000), accepted_through=(800, 600, 400), request_steps=1000
    ),
    wall_time_s=1.0,
    measured_at=at(-100),
)


def fleet(
    first: float, second: float, third: float, engines: int = 4, **facts: object
) -> list[LiveSnapshot]:
    """Engines that accept at these rates; each a little off."""
    return [
        snapshot(
            f"e{n}",
            drafted=(5000, 4000, 2000),
            accepted=(
                int(5000 * (first + 0.002 * n)),
                int(4000 * second),
                int(2000 * third),
            ),
            **facts,  # pyright: ignore[reportArgumentType]
        )
        for n in range(engines)
    ]


def say(snapshots: list[LiveSnapshot]) -> DriftReport:
    return drift(POLICY, PRIOR, snapshots, NAME, NOW.timestamp())


def test_traffic_like_the_prior_is_no_drift() -> None:
    report = say(fleet(0.79, 0.62, 0.41))
    assert not report.drifted
    assert report.engines == 4
    assert report.survival == pytest.approx((0.793, 0.62, 0.41), abs=0.001)


def test_other_traffic_is_told_by_position() -> None:
    report = say(fleet(0.79, 0.40, 0.10))
    assert [finding.position for finding in report.findings] == [2, 3]
    assert "survival at position 2: live 0.400" in report.words()[0]


def test_too_little_traffic_says_nothing() -> None:
    assert say([snapshot(drafted=(900, 900, 900), accepted=(9, 9, 9))]).survival == ()


def test_engines_that_differ_much_say_little() -> None:
    split = [
        snapshot(f"e{n}", drafted=(5000, 4000, 2000), accepted=(4000, int(4000 * rate), 100))
        for n, rate in enumerate((0.05, 0.95))
    ]
    assert [finding.position for finding in say(split).findings] == [3]


def test_slower_steps_are_told() -> None:
    slow = {(1, 0): 1.3, (4, 3): 1.25}
    report = say([snapshot(f"e{n}", residuals=slow) for n in range(3)])
    assert [finding.kind for finding in report.findings] == ["step_time"]
    assert report.step_time_ratio == pytest.approx(1.275, abs=0.01)
    assert not say([snapshot(residuals={(1, 0): 1.1})]).drifted


def test_old_snapshots_and_other_fingerprints_do_not_count_but_are_told() -> None:
    old = fleet(0.1, 0.1, 0.1, age_s=7 * 3600)
    other = fleet(0.1, 0.1, 0.1, 2, fingerprint=upgraded().identity)
    fallen = snapshot("fallen", falls=2, mode="off")
    report = say([*old, *other, fallen])
    assert (report.engines, report.drifted) == (1, False)
    assert report.notes == (
        "4 snapshots are too old to count",
        "2 engines run under another fingerprint",
        "1 engines fell back to their boot table: fallen",
        "1 engines are switched off",
    )


def test_a_harvest_is_a_prior_with_the_rates_of_the_fleet() -> None:
    found = harvest(POLICY, fleet(0.79, 0.40, 0.10), NAME, 3, NOW)
    assert found.prior is not None
    counts = found.prior.counts
    rates = np.array(counts.accepted_through) / np.array(counts.drafted_through)
    assert rates == pytest.approx([0.793, 0.40, 0.10], abs=0.001)
    assert counts.drafted_through == (8000, 8000, 8000)
    assert found.prior.prompts_hash.startswith("live:")
    assert found.prior.measured_at < at(0)
    assert found.engines == ("e0", "e1", "e2", "e3")


def test_positions_drafted_too_rarely_have_no_counts() -> None:
    one = snapshot(drafted=(5000, 4000, 10), accepted=(4000, 3000, 9))
    found = harvest(POLICY, [one], NAME, 4, NOW)
    assert found.prior is not None
    assert found.prior.counts.drafted_through == (4000, 4000, 0, 0)
    assert "positions 3–4 were drafted too rarely" in found.reasons[0]


def test_without_enough_traffic_there_is_no_prior_and_a_reason() -> None:
    for snapshots in ([], [snapshot()], fleet(0.5, 0.5, 0.5, fingerprint=upgraded().identity)):
        found = harvest(POLICY, snapshots, NAME, 3, NOW)
        assert found.prior is None
        assert found.reasons[0] == "0 drafts, 1000 are needed"


@st.composite
def live_counts(draw: st.DrawFn) -> SurvivalCounts:
    offered = sorted(draw(st.lists(st.integers(1000, 10**6), min_size=1, max_size=6)), reverse=True)
    proposed = sorted(draw(st.lists(st.floats(0.05, 1), min_size=6, max_size=6)), reverse=True)
    accepted = sorted(draw(st.lists(st.floats(0, 1), min_size=6, max_size=6)), reverse=True)
    drafted = [float(int(o * p)) for o, p in zip(offered, proposed, strict=False)]
    passed = [float(int(d * a)) for d, a in zip(drafted, accepted, strict=False)]
    return SurvivalCounts(drafted, passed, offered[0], [float(o) for o in offered])


@settings(max_examples=300, deadline=None)
@given(live_counts())
def test_rates_are_kept_and_no_position_looks_better_measured(counts: SurvivalCounts) -> None:
    deep = counts.drafted_through.size
    fixed = as_fixed_length(counts, deep)
    again = SurvivalCounts(
        list(fixed.drafted_through), list(fixed.accepted_through), fixed.request_steps
    )
    least = min(fixed.drafted_through)
    tolerance = 2.0 / least
    assert survival(again) == pytest.approx(survival(counts), abs=tolerance)
    assert proposal_rate(again) == pytest.approx(proposal_rate(counts), abs=tolerance)
    assert fixed.drafted_through[-1] <= counts.drafted_through[-1] * (1 + 1e-9) + 1


@settings(max_examples=100, deadline=None)
@given(st.lists(live_counts(), max_size=4), st.integers(1, 8))
def test_pooling_adds_up(engines: list[SurvivalCounts], positions: int) -> None:
    pooled = pool(engines, positions)
    assert pooled.drafted_through.size == positions
    assert pooled.drafted_through[0] == sum(one.drafted_through[0] for one in engines)
    assert pooled.request_steps == sum(one.request_steps for one in engines)
