"""Retention never removes what somebody needs."""

import pathlib
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabletune.maintain.policies import RetentionPolicy
from tabletune.maintain.retention import apply_retention, plan_retention
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.pointer import Pointer
from tabletune.records.snapshot import LiveSnapshot
from tabletune.records.table import Parents, TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store.base import Store
from tabletune.store.check import problems
from tabletune.store.errors import ObjectMissing
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import promote, rollback
from tests.maintain.live import snapshot
from tests.maintain.scenes import NOW, at, verdict, version
from tests.store.places import Place
from tests.store.world import FINGERPRINT


def days_ago(days: float) -> str:
    return at(-24 * days)


def put_version(store: Store, number: int, days: float) -> tuple[str, str, str]:
    """A version with a prior, and its verdict, so many days old: version, verdict, prior."""
    prior = AcceptancePrior(
        fingerprint=FINGERPRINT.identity,
        draft_length=1,
        source="measured",
        prompt_count=number + 1,
        prompts_hash="p",
        counts=PositionCounts(drafted_through=(9,), accepted_through=(1,), request_steps=9),
        wall_time_s=1.0,
        measured_at=days_ago(days),
    )
    name = store.put(prior)
    new = version(by=f"number {number}", hours=-24 * days).model_copy(
        update={"parents": Parents(acceptance_prior=name)}
    )
    return store.put(new), store.put(verdict(new, hours=-24 * days)), name


@pytest.fixture
def store(place: Place) -> Store:
    opened = place.open()
    opened.put(FINGERPRINT)
    return opened


def everything(store: Store) -> set[str]:
    return {name for kind in (TableVersion, Verdict, AcceptancePrior) for name in store.list(kind)}


#: Two versions of each channel stay, as few as may be asked for.
FEW = RetentionPolicy(keep_versions=2)


@dataclass
class Told:
    """What engines told back, in memory."""

    snapshots: list[LiveSnapshot] = field(default_factory=list[LiveSnapshot])

    def list_snapshots(self, channel: str) -> tuple[str, ...]:
        return tuple(sorted(s.engine.run_id for s in self.snapshots if s.channel == channel))

    def read_snapshot(self, channel: str, run_id: str) -> LiveSnapshot:
        for one in self.snapshots:
            if (one.channel, one.engine.run_id) == (channel, run_id):
                return one
        raise ObjectMissing(LiveSnapshot.KIND, run_id, channel)

    def remove_snapshot(self, channel: str, run_id: str) -> None:
        self.snapshots.remove(self.read_snapshot(channel, run_id))


def clean(
    store: Store, snapshots: tuple[LiveSnapshot, ...] = (), policy: RetentionPolicy = FEW
) -> int:
    plan = plan_retention(store, snapshots, (), NOW, policy)
    return apply_retention(store, plan, Told(list(snapshots)))


def test_what_was_never_in_force_goes_when_it_is_old_with_all_that_it_names(store: Store) -> None:
    old, young = put_version(store, 1, 30), put_version(store, 2, 3)
    plan = plan_retention(store, (), (), NOW)
    assert plan.words() == (
        "to remove: 1 of acceptance_prior, 1 of table_version, 1 of verdict; kept: 3",
    )
    assert apply_retention(store, plan, Told()) == 3
    assert everything(store) == set(young)
    assert apply_retention(store, plan, Told()) in (0, 3)  # again: nothing more is lost
    assert everything(store).isdisjoint(old)


def test_histories_stay_whole_and_only_old_measurements_go(store: Store) -> None:
    made = [put_version(store, n, 400 - 100 * n) for n in range(4)]
    for n, (name, seen, _) in enumerate(made):
        promote(store, "live", name, seen, days_ago(400 - 100 * n), "a test", "a test")
    clean(store)
    left = everything(store)
    versions, verdicts, priors = (set(column) for column in zip(*made, strict=True))
    assert versions | verdicts <= left
    # Replaced 300 and 200 days ago; number 2 is the one before the one in force.
    assert priors & left == {made[2][2], made[3][2]}
    assert problems(store) == []
    assert rollback(store, "live", at(), "ada", "complaints", made[0][0]).moved


def test_what_an_engine_still_runs_stays(store: Store) -> None:
    running = put_version(store, 1, 300)
    other = put_version(store, 2, 300)
    assert clean(store, (snapshot(version=running[0]),)) == 4  # its verdict, and all of the other
    assert {running[0], running[2]} <= everything(store)
    assert other[0] not in everything(store)


def test_what_an_engine_ran_that_is_no_more_goes_with_its_snapshot(store: Store) -> None:
    old = put_version(store, 1, 300)
    day_s = 86400.0
    gone, silent = (
        snapshot("gone", version=old[0], age_s=31 * day_s),
        snapshot("silent", version=old[0], age_s=29 * day_s),
    )
    told = Told([gone, silent])
    plan = plan_retention(store, told.snapshots, (), NOW)
    assert plan.forget == (gone,)
    assert old[0] not in {name for _, name in plan.remove}
    told = Told([gone])
    plan = plan_retention(store, told.snapshots, (), NOW)
    assert apply_retention(store, plan, told) == 4
    assert told.snapshots == []
    assert everything(store).isdisjoint(old)


def test_an_engine_that_is_back_keeps_its_snapshot(store: Store) -> None:
    gone = snapshot("engine", age_s=31 * 86400.0)
    plan = plan_retention(store, (gone,), (), NOW)
    told = Told([snapshot("engine", age_s=1.0)])
    assert apply_retention(store, plan, told) == 0
    assert len(told.snapshots) == 1


def test_the_last_versions_of_a_channel_keep_their_measurements(store: Store) -> None:
    made = [put_version(store, n, 900 - 100 * n) for n in range(6)]
    for n, (name, seen, _) in enumerate(made):
        promote(store, "live", name, seen, days_ago(900 - 100 * n), "a test", "a test")
    rollback(store, "live", days_ago(380), "ada", "complaints", made[4][0])
    priors = [prior for _, _, prior in made]
    clean(store, policy=RetentionPolicy(keep_versions=4))
    assert [prior in everything(store) for prior in priors] == [
        False,
        False,
        True,
        True,
        True,
        True,
    ]
    clean(store, policy=FEW)
    assert [prior in everything(store) for prior in priors] == [False] * 4 + [True] * 2


def test_the_newest_harvest_of_what_is_served_stays(store: Store) -> None:
    name, seen, _ = put_version(store, 1, 300)
    promote(store, "live", name, seen, days_ago(300), "a test", "a test")
    older, newer, other = (
        store.put(harvested(days, fingerprint))
        for days, fingerprint in ((60, FINGERPRINT.identity), (50, FINGERPRINT.identity), (40, "x"))
    )
    clean(store)
    assert {newer} == everything(store) & {older, newer, other}


def harvested(days: float, fingerprint: str) -> AcceptancePrior:
    return AcceptancePrior(
        fingerprint=fingerprint,
        draft_length=1,
        source="measured",
        prompt_count=3,
        prompts_hash="live:0123",
        counts=PositionCounts(drafted_through=(9,), accepted_through=(1,), request_steps=9),
        wall_time_s=1.0,
        measured_at=days_ago(days),
    )


def test_a_snapshot_that_cannot_be_read_stops_all_removal(store: Store) -> None:
    put_version(store, 1, 300)
    plan = plan_retention(store, (), ("live/engine-7",), NOW)
    assert (plan.remove, plan.forget) == ((), ())
    assert "nothing is removed" in plan.notes[0]
    assert "live/engine-7" in plan.notes[0]


def test_a_history_that_cannot_be_read_stops_all_removal(place: Place) -> None:
    store = place.open()
    store.put(FINGERPRINT)
    for n in range(3):
        name, seen, _ = put_version(store, n, 300)
        promote(store, "live", name, seen, days_ago(300), "a test", "a test")
    put_version(store, 9, 300)
    first = next(p for p in store.history("live") if p.sequence == 1)
    place.remove(f"objects/{Pointer.KIND}/{first.content_hash}.json")
    plan = plan_retention(place.open(), (), (), NOW)
    assert plan.remove == ()
    assert "history of live cannot be read" in plan.notes[0]


def test_a_promotion_between_planning_and_removing_is_respected(store: Store) -> None:
    name, seen, prior = put_version(store, 1, 30)
    plan = plan_retention(store, (), (), NOW)
    assert len(plan.remove) == 3
    promote(store, "live", name, seen, at(), "ada", "by hand")
    apply_retention(store, plan, Told())
    assert {name, seen, prior} <= everything(store)
    assert problems(store) == []


def test_young_records_always_stay(tmp_path: pathlib.Path) -> None:
    store = FolderStore(tmp_path / "store")
    with pytest.raises(ValueError, match="young_days"):
        RetentionPolicy(young_days=0.1)
    put_version(store, 1, -5)  # dated in the future: a clock is wrong, not the record
    assert plan_retention(store, (), (), NOW).remove == ()


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_after_any_life_of_a_store_it_is_sound_and_serves(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    store = FolderStore(tmp_path_factory.mktemp("life") / "store")
    store.put(FINGERPRINT)
    made: list[tuple[str, str, str]] = []
    for number in range(data.draw(st.integers(1, 6))):
        days = data.draw(st.sampled_from([1, 10, 100, 300]))
        made.append(put_version(store, number, days))
        what = data.draw(st.sampled_from(["keep", "promote", "promote", "rollback"]))
        moment = NOW - timedelta(days=data.draw(st.sampled_from([0, 50, 200])))
        if what == "promote":
            name, seen, _ = data.draw(st.sampled_from(made))
            promote(store, "live", name, seen, moment.isoformat(), "a test", "a test")
        elif what == "rollback" and len(list(store.history("live"))) > 1:
            target = data.draw(st.sampled_from([p.table_version for p in store.history("live")]))
            rollback(store, "live", moment.isoformat(), "a test", "a test", target)
    running = data.draw(st.sampled_from(made))
    clean(store, (snapshot(version=running[0]),))
    assert problems(store) == []
    assert {running[0], running[2]} <= everything(store)
    states = list(store.history("live"))
    if states:
        parents = store.get(TableVersion, states[0].table_version).parents
        store.get(AcceptancePrior, parents.acceptance_prior)
    assert clean(store, (snapshot(version=running[0]),)) == 0
