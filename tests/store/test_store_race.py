"""Several processes at once, and processes that are killed at any moment."""

import multiprocessing
from multiprocessing.connection import Connection

import pytest

from tabletune.records.table import TableVersion
from tabletune.store.check import problems
from tabletune.store.opening import open_store
from tabletune.store.promotion import promote
from tests.store.workers import WAIT_S, promote_for_ever, race
from tests.store.world import AT, World

SPAWN = multiprocessing.get_context("spawn")
PROCESSES = 5
ROUNDS = 8


def receive(end: Connection) -> list[tuple[bool, str]]:
    assert end.poll(WAIT_S), "a worker sent nothing"
    return end.recv()


@pytest.mark.timeout(180)
def test_of_many_promotions_at_once_exactly_one_wins(world: World) -> None:
    barrier = SPAWN.Barrier(PROCESSES)
    pipes = [SPAWN.Pipe(duplex=False) for _ in range(PROCESSES)]
    workers = [
        SPAWN.Process(
            target=race, args=(world.store.url, number, ROUNDS, barrier, pipes[number][1])
        )
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    try:
        results = [receive(end) for end, _ in pipes]
    finally:
        for worker in workers:
            worker.join(WAIT_S)
            worker.kill()
    history = list(world.store.history("live"))[::-1]
    assert [state.sequence for state in history] == list(range(1, ROUNDS + 1))
    for turn, state in enumerate(history):
        answers = [result[turn] for result in results]
        assert sum(won for won, _ in answers) == 1
        # All, the losers too, name the same winner, and the store agrees.
        assert {who for _, who in answers} == {state.moved_by}
    assert len(world.store.list(TableVersion)) == PROCESSES * ROUNDS
    assert problems(world.store) == []


@pytest.mark.timeout(180)
def test_a_writer_that_is_killed_leaves_a_sound_store(world: World) -> None:
    reached = 0
    for number in range(3):
        end, other_end = SPAWN.Pipe(duplex=False)
        worker = SPAWN.Process(target=promote_for_ever, args=(world.store.url, number, other_end))
        worker.start()
        for _ in range(3 + 2 * number):
            assert end.poll(WAIT_S)
            reached = end.recv()
        worker.kill()  # in the middle of whatever it does
        worker.join(WAIT_S)
        store = open_store(world.store.url)
        assert problems(store) == []
        pointer, _ = store.read_pointer("live")
        assert pointer is not None
        assert pointer.sequence >= reached  # what was reported is never lost
        # The lock of the killed process is free, and its left-overs are in nobody's way.
        version, verdict = world.candidate()
        move = promote(store, "live", version, verdict, AT, "a test", "afterwards")
        assert move.pointer.sequence == pointer.sequence + 1
    assert len(list(world.store.history("live"))) >= 3 * 4
