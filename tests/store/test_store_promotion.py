"""What may move a channel's pointer, and how it moves back."""

from collections.abc import Callable
from typing import Any

import pytest

from tabletune.records.fingerprint import Fingerprint
from tabletune.records.table import TableVersion
from tabletune.store.base import Store
from tabletune.store.check import problems
from tabletune.store.errors import LostRace, MoveRefused, ObjectCorrupt, ObjectMissing
from tabletune.store.fingerprints import find_fingerprint, same_fingerprint
from tabletune.store.history import describe_history
from tabletune.store.promotion import Move, promote, rollback
from tests.store.places import Place
from tests.store.world import (
    AT,
    FINGERPRINT,
    World,
    make_verdict,
    make_version,
    other_model,
    upgraded,
)


def put_in_force(world: World, fingerprint: Fingerprint = FINGERPRINT) -> str:
    version, verdict = world.candidate(fingerprint)
    assert promote(world.store, "live", version, verdict, AT, "nightly", "better").moved
    return version


def in_force(world: World, channel: str = "live") -> str:
    pointer, _ = world.store.read_pointer(channel)
    return pointer.table_version if pointer else ""


def refused(world: World, version: str, verdict: str | None, channel: str = "live") -> MoveRefused:
    """The refusal, after checking that nothing was changed by it."""
    before = world.place.snapshot()
    with pytest.raises(MoveRefused) as caught:
        promote(world.store, channel, version, verdict, AT, "nightly", "better")
    assert world.place.snapshot() == before
    return caught.value


def test_a_passing_verdict_promotes(world: World) -> None:
    version, verdict = world.candidate()
    move = promote(world.store, "live", version, verdict, AT, "nightly", "first table")
    assert move == Move(move.pointer, True)
    pointer, _ = world.store.read_pointer("live")
    assert pointer is not None
    assert pointer == move.pointer
    assert (pointer.action, pointer.verdict, pointer.sequence) == ("promote", verdict, 1)
    assert (pointer.table_version, pointer.fingerprint) == (version, FINGERPRINT.identity)
    assert (pointer.moved_at, pointer.moved_by, pointer.reason) == (AT, "nightly", "first table")
    assert problems(world.store) == []


def test_a_failed_verdict_is_refused(world: World) -> None:
    version, verdict = world.candidate(passed=False)
    refusal = refused(world, version, verdict)
    assert refusal.reasons == ("the verdict failed: 5 % below K=1 at concurrency 4",)
    assert refusal.can_be_forced


def test_no_verdict_is_refused(world: World) -> None:
    version, _ = world.candidate()
    assert refused(world, version, None).reasons == ("there is no verdict",)


def test_a_verdict_for_another_version_is_refused(world: World) -> None:
    version, _ = world.candidate()
    other, verdict = world.candidate()
    assert refused(world, version, verdict).reasons == (
        f"the verdict is for table version {other[:12]}",
    )


def test_a_verdict_under_another_fingerprint_is_refused(world: World) -> None:
    version, _ = world.candidate()
    world.store.put(upgraded())
    verdict = world.store.put(make_verdict(version, fingerprint=upgraded()))
    assert refused(world, version, verdict).reasons == (
        f"the verdict was measured under fingerprint {upgraded().identity[:12]}",
    )


def test_all_reasons_are_given_at_once(world: World) -> None:
    version, _ = world.candidate()
    world.store.put(upgraded())
    verdict = world.store.put(make_verdict("a" * 64, passed=False, fingerprint=upgraded()))
    assert len(refused(world, version, verdict).reasons) == 3


def test_a_version_that_is_not_in_the_store_is_refused_even_by_force(world: World) -> None:
    version = make_version(7).content_hash
    verdict = world.store.put(make_verdict(version))
    for force in (False, True):
        with pytest.raises(ObjectMissing, match="table_version"):
            promote(world.store, "live", version, verdict, AT, "x", "y", force=force)
    assert in_force(world) == ""


def test_a_version_without_its_fingerprint_is_refused(place: Place) -> None:
    store = place.open()
    version = store.put(make_version(0))
    verdict = store.put(make_verdict(version))
    with pytest.raises(ObjectMissing, match=f"fingerprint {FINGERPRINT.identity}"):
        promote(store, "live", version, verdict, AT, "x", "y")


def test_a_corrupted_version_is_never_put_in_force(world: World) -> None:
    version, verdict = world.candidate()
    key = f"objects/table_version/{version}.json"
    damaged = world.place.read(key).replace(b'"draft_length":3', b'"draft_length":1')
    world.place.write(key, damaged)
    for force in (False, True):
        with pytest.raises(ObjectCorrupt):
            promote(world.store, "live", version, verdict, AT, "x", "y", force=force)
    assert in_force(world) == ""


def test_promoting_what_is_in_force_changes_nothing_and_says_so(world: World) -> None:
    version, verdict = world.candidate()
    first = promote(world.store, "live", version, verdict, AT, "x", "y")
    before = world.place.snapshot()
    again = promote(world.store, "live", version, verdict, AT, "x", "again")
    assert again == Move(first.pointer, False, (f"{version[:12]} is already in force on live",))
    assert world.place.snapshot() == before


def test_channels_are_apart(world: World) -> None:
    live = put_in_force(world)
    version, verdict = world.candidate()
    promote(world.store, "canary", version, verdict, AT, "x", "y")
    assert (in_force(world), in_force(world, "canary")) == (live, version)


def test_force_overrides_and_says_what(world: World) -> None:
    version, verdict = world.candidate(passed=False)
    move = promote(world.store, "live", version, verdict, AT, "ops", "urgent", force=True)
    assert (move.pointer.action, move.pointer.verdict) == ("force", verdict)
    assert move.pointer.reason == (
        "urgent (forced although the verdict failed: 5 % below K=1 at concurrency 4)"
    )
    version, _ = world.candidate()
    move = promote(world.store, "live", version, None, AT, "ops", "urgent", force=True)
    assert (move.pointer.action, move.pointer.verdict) == ("force", "")


def test_force_that_was_not_needed_is_a_plain_promotion(world: World) -> None:
    version, verdict = world.candidate()
    move = promote(world.store, "live", version, verdict, AT, "ops", "sure", force=True)
    assert (move.pointer.action, move.pointer.reason) == ("promote", "sure")


def test_another_model_is_refused_with_the_differences_in_words(world: World) -> None:
    put_in_force(world)
    version, verdict = world.candidate(other_model())
    (reason,) = refused(world, version, verdict).reasons
    assert reason == "the channel serves something else: model content: sha256:a → sha256:b"
    move = promote(world.store, "live", version, verdict, AT, "ops", "new model", force=True)
    assert move.pointer.action == "force"
    assert move.pointer.verdict == verdict


def test_another_method_is_refused(world: World) -> None:
    put_in_force(world)
    version, verdict = world.candidate(FINGERPRINT.model_copy(update={"method": "suffix"}))
    assert "drafter method: ngram → suffix" in refused(world, version, verdict).reasons[0]


def test_an_engine_upgrade_is_promoted_and_noted(world: World) -> None:
    before = put_in_force(world)
    version, verdict = world.candidate(upgraded(), incumbent=before)
    move = promote(world.store, "live", version, verdict, AT, "nightly", "upgrade")
    assert move.pointer.action == "promote"
    assert move.notes == ("since the version before, engine version: 0.32.0 → 0.33.0",)


def test_what_cannot_be_compared_is_refused(world: World) -> None:
    put_in_force(world)
    version, verdict = world.candidate(upgraded())
    for name in (FINGERPRINT.content_hash, FINGERPRINT.identity):
        world.place.remove(f"objects/fingerprint/{name}.json")
    (reason,) = refused(world, version, verdict).reasons
    assert "is not in the store" in reason


def test_a_verdict_against_another_incumbent_is_noted(world: World) -> None:
    before = put_in_force(world)
    version, verdict = world.candidate()
    move = promote(world.store, "live", version, verdict, AT, "nightly", "better")
    assert move.notes == (
        f"the verdict compared it with no incumbent, but {before[:12]} was in force here",
    )


def test_a_promotion_in_the_meantime_is_not_undone_unseen(world: World) -> None:
    seen = put_in_force(world)
    version, verdict = world.candidate(incumbent=seen)
    winner = put_in_force(world)
    for expected in (seen, ""):
        with pytest.raises(LostRace) as caught:
            promote(world.store, "live", version, verdict, AT, "x", "y", expected_version=expected)
        assert caught.value.winner is not None
        assert caught.value.winner.table_version == winner
    assert in_force(world) == winner
    move = promote(world.store, "live", version, verdict, AT, "x", "y", expected_version=winner)
    assert move.moved


def test_rollback_returns_to_the_version_before(world: World) -> None:
    first, second = put_in_force(world), put_in_force(world)
    move = rollback(world.store, "live", AT, "ops", "slow")
    assert move.moved
    assert (move.pointer.action, move.pointer.sequence) == ("rollback", 3)
    assert (move.pointer.table_version, move.pointer.previous_version) == (first, second)
    assert in_force(world) == first
    assert problems(world.store) == []


def test_rolling_back_twice_never_returns_to_what_was_rolled_back(world: World) -> None:
    first, second, _ = (put_in_force(world) for _ in range(3))
    rollback(world.store, "live", AT, "ops", "slow")
    assert in_force(world) == second
    rollback(world.store, "live", AT, "ops", "still slow")
    assert in_force(world) == first
    with pytest.raises(MoveRefused, match="has nothing before it") as caught:
        rollback(world.store, "live", AT, "ops", "still slow")
    assert not caught.value.can_be_forced
    assert in_force(world) == first


def test_rollback_after_promotions_and_rollbacks(world: World) -> None:
    first = put_in_force(world)
    put_in_force(world)
    rollback(world.store, "live", AT, "ops", "slow")
    third = put_in_force(world)
    put_in_force(world)
    rollback(world.store, "live", AT, "ops", "slow")
    assert in_force(world) == third
    rollback(world.store, "live", AT, "ops", "slow")
    assert in_force(world) == first


def test_rollback_to_a_named_version(world: World) -> None:
    first, second, third = (put_in_force(world) for _ in range(3))
    assert rollback(world.store, "live", AT, "ops", "slow", to=first).moved
    assert in_force(world) == first
    assert rollback(world.store, "live", AT, "ops", "fixed", to=third).moved
    assert in_force(world) == third
    again = rollback(world.store, "live", AT, "ops", "again", to=third)
    assert not again.moved
    assert again.notes == (f"{third[:12]} is already in force on live",)
    rollback(world.store, "live", AT, "ops", "slow")
    assert in_force(world) == second


def test_rollback_goes_only_where_the_channel_was(world: World) -> None:
    put_in_force(world)
    put_in_force(world)
    stranger, _ = world.candidate()
    before = world.place.snapshot()
    with pytest.raises(MoveRefused, match="was never in force on channel 'live'"):
        rollback(world.store, "live", AT, "ops", "slow", to=stranger)
    with pytest.raises(MoveRefused, match="channel 'canary' never had a version"):
        rollback(world.store, "canary", AT, "ops", "slow")
    assert world.place.snapshot() == before


def test_rollback_across_an_upgrade_is_noted(world: World) -> None:
    put_in_force(world)
    put_in_force(world, upgraded())
    move = rollback(world.store, "live", AT, "ops", "downgrade")
    assert move.pointer.fingerprint == FINGERPRINT.identity
    assert move.notes == ("since the version before, engine version: 0.33.0 → 0.32.0",)


@pytest.mark.parametrize("lost", ["version", "fingerprint", "old state"])
def test_rollback_works_although_something_else_is_lost(world: World, lost: str) -> None:
    put_in_force(world)
    second = put_in_force(world)
    third = put_in_force(world, upgraded())
    oldest = list(world.store.history("live"))[1].previous_pointer
    key = {
        "version": f"table_version/{third}",
        "fingerprint": f"fingerprint/{FINGERPRINT.content_hash}",
        "old state": f"pointer/{oldest}",
    }[lost]
    world.place.remove(f"objects/{key}.json")
    assert rollback(world.store, "live", AT, "ops", "slow").moved
    assert in_force(world) == second


def test_rollback_to_a_lost_version_is_refused(world: World) -> None:
    first, second = put_in_force(world), put_in_force(world)
    world.place.remove(f"objects/table_version/{first}.json")
    with pytest.raises(ObjectMissing, match="table_version"):
        rollback(world.store, "live", AT, "ops", "slow")
    assert in_force(world) == second


def meddling(world: World, act: Callable[[], object]) -> Store:
    """A store in which `act` happens between reading the pointer and moving it."""
    store = world.place.open()
    get, done = store.get, False

    def meddled(kind: type[Any], name: str) -> Any:
        nonlocal done
        if kind is TableVersion and not done:
            done = True
            act()
        return get(kind, name)

    store.get = meddled  # type: ignore[method-assign]
    return store


def test_a_move_between_reading_and_writing_is_a_lost_race(world: World) -> None:
    put_in_force(world)
    version, verdict = world.candidate()
    store = meddling(world, lambda: put_in_force(world))
    with pytest.raises(LostRace, match="by nightly"):
        promote(store, "live", version, verdict, AT, "x", "y")
    winner = in_force(world)
    store = meddling(world, lambda: put_in_force(world))
    with pytest.raises(LostRace, match="by nightly"):
        rollback(store, "live", AT, "x", "y")
    assert in_force(world) not in (version, winner)


def test_the_history_in_words(world: World) -> None:
    assert describe_history(world.store, "live") == ["channel 'live' never had a version"]
    first = put_in_force(world)
    bad, verdict = world.candidate(passed=False)
    promote(world.store, "live", bad, verdict, AT, "ops", "hurry", force=True)
    rollback(world.store, "live", AT, "ops", "slow")
    lines = describe_history(world.store, "live")
    assert [line.split(".")[0] for line in lines] == ["3", "2", "1"]
    assert f"rolled back to {first[:12]} by ops: slow, before it {bad[:12]}" in lines[0]
    assert [line.endswith("← in force") for line in lines] == [True, False, False]
    assert f"forced {bad[:12]} by ops: hurry (forced although" in lines[1]
    assert f"promoted {first[:12]} by nightly: better, verdict" in lines[2]


def test_a_fingerprint_is_found_by_identity_whatever_its_labels(world: World) -> None:
    moved = FINGERPRINT.model_copy(
        update={"model": FINGERPRINT.model.model_copy(update={"label": "elsewhere"})}
    )
    world.store.put(moved)
    assert find_fingerprint(world.store, FINGERPRINT.identity).matches(moved)
    assert find_fingerprint(world.store, moved.content_hash) == moved
    assert same_fingerprint(world.store, moved.content_hash, FINGERPRINT.content_hash)
    assert not same_fingerprint(world.store, moved.identity, upgraded().identity)
    with pytest.raises(ObjectMissing):
        find_fingerprint(world.store, upgraded().identity)


def test_a_damaged_copy_of_a_fingerprint_does_not_hide_an_intact_one(world: World) -> None:
    moved = FINGERPRINT.model_copy(
        update={"model": FINGERPRINT.model.model_copy(update={"label": "elsewhere"})}
    )
    for name in (world.store.put(moved), FINGERPRINT.content_hash):
        key = f"objects/fingerprint/{name}.json"
        good = world.place.read(key)
        world.place.write(key, b"{}")
        assert find_fingerprint(world.store, FINGERPRINT.identity).matches(FINGERPRINT)
        world.place.write(key, good)


def test_several_reasons_stand_one_a_line(world: World) -> None:
    version, _ = world.candidate()
    _, verdict = world.candidate(passed=False)
    refusal = refused(world, version, verdict)
    assert len(refusal.reasons) == 2
    lines = str(refusal).splitlines()
    assert lines[0].startswith("expected a passing verdict")
    assert lines[1:-1] == [f"  {reason}" for reason in refusal.reasons]
    assert lines[-1].startswith("validate this version")
