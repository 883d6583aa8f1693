"""Retunes that run at once, duplicated schedules, and clocks that disagree."""

import pathlib
import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest

from tabletune.maintain.decisions import carry_out, decide
from tabletune.maintain.deployments import Deployment
from tabletune.records.table import TableVersion
from tabletune.store.base import Store
from tabletune.store.check import problems
from tabletune.store.errors import LostRace
from tabletune.store.folder import FolderStore
from tests.maintain.scenes import NOW, FixedClock, deployment, verdict, version
from tests.store.places import Place
from tests.store.world import FINGERPRINT

#: Two tables, far enough apart to be worth a change and near enough to need no person.
TABLES = (version(3, 4, 1, 8, 0, 16), version(3, 5, 1, 9, 0, 16))


def retune(
    store: Store, one: Deployment, new: TableVersion, barrier: threading.Barrier, who: str
) -> str:
    """Validate against what is in force, wait for the others, decide and carry out."""
    clock = FixedClock()
    pointer, _ = store.read_pointer("live")
    seen = verdict(new, pointer.table_version if pointer else "")
    names = store.put(new), store.put(seen)
    barrier.wait(60)
    decided = decide(store, one, *names, clock, who)
    if not decided.allowed:
        return decided.outcome
    try:
        move = carry_out(store, one, decided, clock, who)
    except LostRace as lost:
        winner = lost.winner.moved_by if lost.winner else ""
        told = winner not in ("", who) and f"put in force by {winner}" in str(lost)
        return "lost" if told else f"lost, without being told to whom: {lost}"
    return "moved" if move.moved else "done already"


def at_once(stores: Sequence[Store], one: Deployment, candidates: list[TableVersion]) -> list[str]:
    """Each candidate in a thread and with a store of its own."""
    barrier = threading.Barrier(len(candidates))
    answers = [""] * len(candidates)

    def work(number: int) -> None:
        name = f"run {number}"
        answers[number] = retune(stores[number], one, candidates[number], barrier, name)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(candidates))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return answers


@pytest.mark.timeout(600)
def test_of_two_retunes_racing_one_wins_two_hundred_times(
    place: Place, tmp_path: pathlib.Path
) -> None:
    """In a folder, and in a real S3 server whose conditions decide it."""
    one, store, rounds = deployment(tmp_path), place.open(), 200
    stores = [place.open(), place.open()]
    store.put(FINGERPRINT)
    for turn in range(rounds):
        pointer, _ = store.read_pointer("live")
        new = version(3, 4 + turn % 2, 1, 8 + turn % 2, 0, 16, by=f"left {turn}")
        other = new.model_copy(update={"created_by": f"right {turn}"})
        answers = at_once(stores, one, [new, other])
        assert answers.count("moved") == 1, answers
        # The loser lost the race, or looked after it and found its verdict out of date or
        # nothing left to do.
        assert set(answers) <= {"moved", "lost", "refuse", "nothing_to_do"}
        after, _ = store.read_pointer("live")
        assert after is not None
        assert after.sequence == (pointer.sequence + 1 if pointer else 1)
    assert len(list(store.history("live"))) == rounds
    assert problems(store) == []


def test_a_schedule_that_fires_five_times_promotes_once(
    place: Place, tmp_path: pathlib.Path
) -> None:
    place.open().put(FINGERPRINT)
    stores = [place.open() for _ in range(5)]
    answers = at_once(stores, deployment(tmp_path), [TABLES[0]] * 5)
    assert answers.count("moved") == 1, answers
    assert set(answers) <= {"moved", "lost", "done already", "nothing_to_do", "refuse"}
    assert [state.sequence for state in place.open().history("live")] == [1]


@pytest.mark.parametrize("hours", [-1000, -1, 1, 1000])
def test_clocks_that_disagree_never_promote_what_is_not_proven(
    tmp_path: pathlib.Path, hours: float
) -> None:
    store, one = FolderStore(tmp_path / "store"), deployment(tmp_path)
    store.put(FINGERPRINT)
    new = TABLES[0]
    names = store.put(new), store.put(verdict(new, hours=hours))
    clock = FixedClock(NOW)
    outcome = decide(store, one, *names, clock, "nightly").outcome
    assert outcome == ("promote" if hours == -1 else "refuse")
    clock.now = NOW + timedelta(hours=2000)
    assert decide(store, one, *names, clock, "nightly").outcome == "refuse"
