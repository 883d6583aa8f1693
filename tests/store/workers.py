"""What the processes of the race tests do; imported by each of them anew."""

import itertools
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

from tabletune.records.pointer import Pointer
from tabletune.store.errors import LostRace
from tabletune.store.opening import open_store
from tabletune.store.promotion import promote
from tests.store.world import AT, FINGERPRINT, make_verdict, make_version

WAIT_S = 60.0


def race(url: str, number: int, rounds: int, barrier: Barrier, answer: Connection) -> None:
    """Move the pointer once a round, together with all others, having read the same state.

    Sends for each round the winner's name: its own, or the one that `LostRace` named.
    """
    store = open_store(url)
    me = f"worker {number}"
    winners: list[tuple[bool, str]] = []
    for turn in range(rounds):
        version = store.put(make_version(1000 * number + turn))
        verdict = store.put(make_verdict(version))
        current, token = store.read_pointer("live")
        before = current.table_version if current else ""
        barrier.wait(WAIT_S)  # everyone has read
        try:
            if turn % 2:
                promote(store, "live", version, verdict, AT, me, "race", expected_version=before)
            else:
                new = Pointer(
                    channel="live",
                    sequence=turn + 1,
                    table_version=version,
                    fingerprint=FINGERPRINT.identity,
                    verdict=verdict,
                    action="promote",
                    previous_version=before,
                    previous_pointer=token.state,
                    moved_at=AT,
                    moved_by=me,
                    reason="race",
                )
                store.move_pointer("live", new, token)
            winners.append((True, me))
        except LostRace as lost:
            winners.append((False, lost.winner.moved_by if lost.winner else ""))
        barrier.wait(WAIT_S)  # everyone has moved
    answer.send(winners)


def promote_for_ever(url: str, number: int, answer: Connection) -> None:
    """Promote one version after the other, sending the sequence of each, until killed."""
    store = open_store(url)
    for turn in itertools.count():
        version = store.put(make_version(10_000 * number + turn))
        verdict = store.put(make_verdict(version))
        move = promote(store, "live", version, verdict, AT, f"worker {number}", "endless")
        answer.send(move.pointer.sequence)
