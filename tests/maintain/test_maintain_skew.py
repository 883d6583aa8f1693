"""Hosts whose clocks are hours off: nothing stale is promoted, nobody waits for ever, and what
was decided stays in order."""

import itertools
import pathlib
from datetime import timedelta

import pytest

from tabletune.maintain.decisions import Decided, carry_out, decide
from tabletune.maintain.deployments import Deployment
from tabletune.maintain.drift import drift
from tabletune.maintain.gpu_lock import GpuBusy, gpu_lock
from tabletune.maintain.harvest import harvest
from tabletune.maintain.policies import DriftPolicy
from tabletune.records.acceptance import PositionCounts
from tabletune.records.decision_record import PromotionDecision
from tabletune.store.base import Store
from tabletune.store.check import problems
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import rollback
from tests.maintain.live import snapshot
from tests.maintain.scenes import NOW, FixedClock, deployment, measured_prior, verdict, version
from tests.store.world import FINGERPRINT

FAR_H = (-1000.0, -5.0, 5.0, 1000.0)
TABLES = ((3, 4, 1, 8, 0, 16), (3, 5, 1, 9, 0, 16))


@pytest.fixture
def one(tmp_path: pathlib.Path) -> Deployment:
    return deployment(tmp_path)


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Store:
    made = FolderStore(tmp_path / "store")
    made.put(FINGERPRINT)
    return made


def decided(store: Store, one: Deployment, turn: int, measured_h: float, here_h: float) -> Decided:
    """Measured by a host whose clock is off by `measured_h`, decided on one off by `here_h`."""
    new = version(*TABLES[turn % 2], hours=measured_h - 1, by=f"turn {turn}")
    pointer, _ = store.read_pointer("live")
    before = pointer.table_version if pointer else ""
    seen = verdict(new, before, hours=measured_h - 0.5)
    clock = FixedClock(NOW + timedelta(hours=here_h))
    return decide(store, one, store.put(new), store.put(seen), clock, f"host {here_h:+g} h")


@pytest.mark.parametrize("hours", FAR_H)
def test_what_another_clock_dated_is_refused_and_measured_anew_promoted(
    store: Store, one: Deployment, hours: float
) -> None:
    said = decided(store, one, 0, measured_h=hours, here_h=0)
    # Five hours ago is fresh enough, whichever clock is wrong; all else is not proven.
    assert said.allowed is (hours == -5.0), said.decision.reasons
    if hours > 0:
        assert "correct the clocks" in said.decision.reasons[0]
    # The host that measures decides by the same clock, and waits for nobody's.
    again = decided(store, one, 1, measured_h=hours, here_h=hours)
    assert again.allowed, again.decision.reasons
    clock = FixedClock(NOW + timedelta(hours=hours))
    assert carry_out(store, one, again, clock, "that host").moved


@pytest.mark.parametrize("offsets", [*itertools.permutations((-1000.0, 0.0, 1000.0))])
def test_decisions_and_moves_stay_in_order_whatever_their_dates(
    store: Store, one: Deployment, offsets: tuple[float, ...]
) -> None:
    names: list[str] = []
    for turn in range(2 * len(offsets)):
        offset = offsets[turn % len(offsets)]
        said = decided(store, one, turn, measured_h=offset, here_h=offset)
        assert said.allowed, said.decision.reasons
        clock = FixedClock(NOW + timedelta(hours=offset))
        assert carry_out(store, one, said, clock, f"host {offset:+g} h").moved
        names.append(said.name)
    moves = list(store.history("live"))[::-1]
    assert [state.sequence for state in moves] == list(range(1, len(names) + 1))
    # By what they name each other as, and not by their dates.
    for name, move in zip(names, moves, strict=True):
        decision = store.get(PromotionDecision, name)
        assert f"decision {name}" in move.reason
        assert (decision.from_pointer, decision.from_version, decision.to_version) == (
            move.previous_pointer,
            move.previous_version,
            move.table_version,
        )
    back = rollback(store, "live", FixedClock(NOW - timedelta(days=9)).utc(), "ann", "slow")
    assert back.pointer.table_version == moves[-2].table_version
    assert problems(store) == []


@pytest.mark.parametrize("hours", [*FAR_H, 0.0])
def test_engines_whose_clocks_are_far_off_do_not_count(hours: float) -> None:
    """A dead engine that was far ahead would look fresh until the calendar gets there."""
    policy = DriftPolicy(snapshot_max_age_h=2.0, least_request_steps=100)
    told = snapshot("e", drafted=(5000, 4000), accepted=(500, 50), age_s=-hours * 3600)
    prior = measured_prior(
        PositionCounts(
            drafted_through=(5000, 5000), accepted_through=(4500, 4000), request_steps=5000
        ),
        NOW.isoformat(),
    )
    report = drift(policy, prior, [told], FINGERPRINT.identity, NOW.timestamp())
    found = harvest(policy, [told], FINGERPRINT.identity, 2, NOW)
    assert report.drifted is (hours == 0)
    assert (found.prior is not None) is (hours == 0)


class SplitClock(FixedClock):
    """Its calendar jumps about while it counts seconds evenly."""

    passed_s: float = 0.0
    jumps = itertools.cycle((timedelta(days=400), timedelta(days=-800)))

    def now_s(self) -> float:
        return self.passed_s

    def sleep_s(self, seconds: float) -> None:
        self.passed_s += seconds
        self.now += next(self.jumps)


def test_who_waits_for_a_device_waits_as_long_as_told(tmp_path: pathlib.Path) -> None:
    clock = SplitClock()
    with (
        gpu_lock(["GPU-a"], "first", clock=clock, folder=tmp_path),
        pytest.raises(GpuBusy, match="within 90 s"),
        gpu_lock(["GPU-a"], "second", 90.0, clock, tmp_path),
    ):
        pytest.fail("both held it")
    assert clock.passed_s == pytest.approx(90)
