"""Decisions on real stores: written down, carried out once, and safe to repeat."""

import pathlib
from datetime import timedelta

import pytest

from tabletune.maintain.canary import CanaryJudgement
from tabletune.maintain.canary_channel import (
    Pending,
    begin_canary,
    canary_back,
    end_canary,
    pending_canary,
    wants_canary,
)
from tabletune.maintain.confirmed import read_confirmed
from tabletune.maintain.decisions import Approval, Decided, carry_out, decide
from tabletune.maintain.deployments import Deployment
from tabletune.records.decision_record import PromotionDecision
from tabletune.records.table import TableVersion
from tabletune.store.base import Store
from tabletune.store.errors import LostRace, MoveRefused
from tabletune.store.promotion import rollback
from tests.maintain.scenes import NOW, FixedClock, deployment, verdict, version
from tests.store.places import Place
from tests.store.world import FINGERPRINT

FIRST = version(3, 4, 1, 8, 0, 16)
BETTER = version(3, 5, 1, 9, 0, 16)
FAR = version(3, 12, 0, 16)


@pytest.fixture
def store(place: Place) -> Store:
    opened = place.open()
    opened.put(FINGERPRINT)
    return opened


@pytest.fixture
def one(tmp_path: pathlib.Path) -> Deployment:
    return deployment(tmp_path, channels={"canary": "canary"})


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


def live(store: Store, channel: str = "live") -> str:
    pointer, _ = store.read_pointer(channel)
    return pointer.table_version if pointer else ""


def ask(
    store: Store,
    one: Deployment,
    new: TableVersion,
    clock: FixedClock,
    approval: Approval | None = None,
    **changes: object,
) -> Decided:
    seen = verdict(new, live(store), **changes)  # pyright: ignore[reportArgumentType]
    names = store.put(new), store.put(seen)
    return decide(store, one, *names, clock, "nightly", approval)


def promoted(store: Store, one: Deployment, new: TableVersion, clock: FixedClock) -> str:
    carry_out(store, one, ask(store, one, new, clock), clock, "nightly")
    return live(store)


def test_a_promotion_is_written_down_with_its_evidence_and_named_by_the_pointer(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    first = promoted(store, one, FIRST, clock)
    decided = ask(store, one, BETTER, clock)
    move = carry_out(store, one, decided, clock, "nightly")
    assert (move.moved, live(store)) == (True, BETTER.content_hash)
    kept = store.get(PromotionDecision, decided.name)
    assert (kept.outcome, kept.from_version, kept.to_version) == (
        "promote",
        first,
        BETTER.content_hash,
    )
    assert kept.evidence[0].name == decided.verdict
    assert kept.policy["least_gain"] == "0.01"
    assert kept.numbers["measured_gain"] == pytest.approx(0.05)
    assert decided.name in move.pointer.reason


def test_doing_it_again_changes_nothing_and_writes_nothing(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    decided = ask(store, one, FIRST, clock)
    carry_out(store, one, decided, clock, "nightly")
    written = store.list(PromotionDecision)
    assert not carry_out(store, one, decided, clock, "a duplicate").moved
    again = ask(store, one, FIRST, clock)
    assert (again.outcome, again.name) == ("nothing_to_do", "")
    assert store.list(PromotionDecision) == written
    assert [state.sequence for state in store.history("live")] == [1]


def test_what_is_refused_cannot_be_carried_out(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    decided = ask(store, one, FIRST, clock, passed=False, reasons=("it lost",))
    assert decided.outcome == "refuse"
    with pytest.raises(MoveRefused, match="it lost"):
        carry_out(store, one, decided, clock, "nightly")
    assert live(store) == ""


def test_a_person_approves_what_the_gate_asked(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    promoted(store, one, FIRST, clock)
    asked = ask(store, one, FAR, clock)
    assert asked.outcome == "ask"
    with pytest.raises(MoveRefused):
        carry_out(store, one, asked, clock, "nightly")
    yes = Approval("ada", True, "looked at the plot", asked.name)
    approved = decide(store, one, asked.version, asked.verdict, clock, "nightly", yes)
    assert (approved.outcome, approved.decision.decided_by) == ("approve", "ada")
    assert approved.decision.answers == asked.name
    carry_out(store, one, approved, clock, "nightly")
    assert live(store) == FAR.content_hash


def test_a_rejection_is_kept_and_stops_it(store: Store, one: Deployment, clock: FixedClock) -> None:
    promoted(store, one, FIRST, clock)
    asked = ask(store, one, FAR, clock)
    no = Approval("ada", False, "", asked.name)
    rejected = decide(store, one, asked.version, asked.verdict, clock, "nightly", no)
    assert rejected.outcome == "reject"
    assert store.get(PromotionDecision, rejected.name).reasons[0].startswith("rejected by ada")
    with pytest.raises(MoveRefused):
        carry_out(store, one, rejected, clock, "nightly")


def test_an_approval_that_comes_too_late_does_not_count(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    promoted(store, one, FIRST, clock)
    asked = ask(store, one, FAR, clock)
    yes = Approval("ada", True, "fine", asked.name)
    clock.now = NOW + timedelta(hours=30)
    late = decide(store, one, asked.version, asked.verdict, clock, "nightly", yes)
    assert late.outcome == "refuse"


def test_an_approval_of_something_else_or_of_another_past_does_not_count(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    promoted(store, one, FIRST, clock)
    asked = ask(store, one, FAR, clock)
    yes = Approval("ada", True, "fine", asked.name)
    with pytest.raises(MoveRefused, match="ask again"):
        ask(store, one, version(3, 13, 0, 16), clock, yes)
    promoted(store, one, BETTER, clock)
    with pytest.raises(MoveRefused, match="ask again"):
        decide(store, one, asked.version, asked.verdict, clock, "nightly", yes)


def test_a_table_that_stays_right_is_confirmed(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    first = promoted(store, one, FIRST, clock)
    again = version(3, 4, 1, 8, 0, 16, hours=-0.7, by="fresh")
    assert ask(store, one, again, clock).outcome == "nothing_to_do"
    confirmed = read_confirmed(pathlib.Path(one.out))
    assert confirmed is not None
    assert (confirmed.table_version, confirmed.at) == (first, again.created_at)


def test_of_two_decisions_about_the_same_past_one_is_carried_out(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    promoted(store, one, FIRST, clock)
    left, right = ask(store, one, BETTER, clock), ask(store, one, version(3, 6, 0, 16), clock)
    carry_out(store, one, left, clock, "left")
    with pytest.raises(LostRace):
        carry_out(store, one, right, clock, "right")
    assert live(store) == left.version


# Canaries.


def canary_on(store: Store, one: Deployment, clock: FixedClock) -> Pending:
    promoted(store, one, FIRST, clock)
    return begin_canary(store, one, ask(store, one, BETTER, clock), clock, "nightly")


GOOD = CanaryJudgement("promote", ("as quick",), 1.0, 0.99, 1.01)
BAD = CanaryJudgement("back", ("slower",), 0.8, 0.7, float("inf"))


def test_a_first_table_needs_no_canary(store: Store, one: Deployment, clock: FixedClock) -> None:
    assert not wants_canary(store, one)
    promoted(store, one, FIRST, clock)
    assert wants_canary(store, one)
    none = one.model_copy(update={"channels": one.channels.model_copy(update={"canary": None})})
    assert not wants_canary(store, none)


def test_a_canary_is_found_again_after_its_run_was_killed_and_goes_live(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    begun = canary_on(store, one, clock)
    assert (live(store), live(store, "canary")) == (FIRST.content_hash, BETTER.content_hash)
    clock.now -= timedelta(days=1)
    found = pending_canary(store, one)
    assert found is not None
    assert found.decided.decision == begun.decided.decision
    end_canary(store, one, found, GOOD, clock, "nightly")
    assert live(store) == BETTER.content_hash
    assert pending_canary(store, one) is None
    assert not end_canary(store, one, found, GOOD, clock, "a duplicate").moved
    outcomes = [store.get(PromotionDecision, n).outcome for n in store.list(PromotionDecision)]
    assert outcomes.count("canary_begin") == 1
    assert "canary_promote" in outcomes


def test_a_bad_canary_goes_back_and_is_not_pending(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    begun = canary_on(store, one, clock)
    end_canary(store, one, begun, BAD, clock, "nightly")
    assert (live(store), live(store, "canary")) == (FIRST.content_hash, FIRST.content_hash)
    assert pending_canary(store, one) is None
    assert not canary_back(store, one, clock, "a duplicate", "slower").moved
    begin_canary(store, one, ask(store, one, BETTER, clock), clock, "nightly")
    end_canary(store, one, begun, BAD, clock, "nightly")
    assert live(store, "canary") == FIRST.content_hash
    assert next(store.history("canary")).action == "rollback"


def test_beginning_twice_is_beginning_once(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    begun = canary_on(store, one, clock)
    again = begin_canary(store, one, begun.decided, clock, "a duplicate")
    assert again.pointer == begun.pointer


def test_a_canary_overtaken_by_another_promotion_goes_nowhere(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    begun = canary_on(store, one, clock)
    promoted(store, one, version(3, 6, 0, 16), clock)
    assert pending_canary(store, one) is None
    with pytest.raises(LostRace):
        end_canary(store, one, begun, GOOD, clock, "nightly")


def test_a_roll_back_while_a_canary_waits_is_not_undone_by_it(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    promoted(store, one, FIRST, clock)
    promoted(store, one, version(3, 6, 0, 16), clock)
    begun = begin_canary(store, one, ask(store, one, BETTER, clock), clock, "nightly")
    rollback(store, "live", clock.utc(), "ada", "complaints")
    with pytest.raises(LostRace):
        end_canary(store, one, begun, GOOD, clock, "nightly")
    assert live(store) == FIRST.content_hash


def test_what_is_not_decided_cannot_be_ended(
    store: Store, one: Deployment, clock: FixedClock
) -> None:
    begun = canary_on(store, one, clock)
    with pytest.raises(ValueError, match="wait"):
        end_canary(store, one, begun, CanaryJudgement("go on", ("early",)), clock, "nightly")
