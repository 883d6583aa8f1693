"""The list that the scheduler reads: whatever is swapped or probed, it gives what it may."""

import random
import threading
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.controller.routes import Routes
from tabletune_vllm.lookup import LiveLookup, Plan, Script

LENGTHS = (0, 1, 2, 4)
SIZE = 6
BOOT = [0, 4, 4, 2, 2, 0, 0]
lengths = st.sampled_from(LENGTHS)
tables = st.tuples(st.just(0), *[lengths] * SIZE)
pairs = st.lists(st.tuples(lengths, lengths), max_size=6)
envelopes = st.sets(st.tuples(st.integers(1, SIZE), lengths))
scripts = st.lists(st.tuples(lengths, st.integers(1, 4)), min_size=1, max_size=3)
operations = st.lists(st.one_of(st.integers(1, SIZE), tables, scripts), min_size=1, max_size=60)


def _lookup() -> tuple[LiveLookup, list[BaseException]]:
    failures: list[BaseException] = []
    return LiveLookup(BOOT, failures.append), failures


def _symmetric(forbidden: list[tuple[int, int]]) -> set[tuple[int, int]]:
    return {pair for a, b in forbidden if a != b for pair in ((a, b), (b, a))}


@given(operations, pairs, envelopes)
def test_no_read_leaves_the_lengths_or_crosses_a_forbidden_transition(
    steps: list[Any], forbidden: list[tuple[int, int]], outside: set[tuple[int, int]]
) -> None:
    banned = _symmetric(forbidden)
    routes = Routes(LENGTHS, banned, SIZE, lambda b, k: (b, k) not in outside)
    lookup, failures = _lookup()
    lookup.plan = Plan(tuple(BOOT), routes)
    read: list[int] = []
    for step in steps:
        if isinstance(step, int):
            read.append(lookup[step])
        elif isinstance(step, tuple):
            lookup.plan = Plan(step, routes)
        else:
            lookup.plan = Plan(lookup.plan.table, routes, Script(step, guarded=True))
    assert failures == []
    assert set(read) <= set(LENGTHS)
    assert not banned & set(pairwise(read))


@given(tables, st.integers(1, SIZE), lengths, pairs)
def test_the_table_is_reached_wherever_a_way_exists(
    table: tuple[int, ...], batch_size: int, start: int, forbidden: list[tuple[int, int]]
) -> None:
    banned = _symmetric(forbidden)
    routes = Routes(LENGTHS, banned, SIZE)
    lookup, _ = _lookup()
    lookup.plan = Plan((start,) * (SIZE + 1), routes)
    assert lookup[batch_size] == start
    lookup.plan = Plan(table, routes)
    reached = {start}
    for _ in LENGTHS:
        reached |= {k for k in LENGTHS if any((a, k) not in banned for a in reached)}
    last = [lookup[batch_size] for _ in LENGTHS][-1]
    assert last == (table[batch_size] if table[batch_size] in reached else start)


def test_a_probe_runs_once_and_keeps_to_the_envelope() -> None:
    routes = Routes(LENGTHS, (), SIZE, lambda b, k: b <= 3 or k == 0)
    lookup, _ = _lookup()
    lookup.plan = Plan((0,) * (SIZE + 1), routes, Script([(4, 2), (1, 2)], guarded=True))
    assert [lookup[1], lookup[5], lookup[2], lookup[2], lookup[2]] == [4, 0, 1, 1, 0]


@given(scripts, st.integers(1, 3))
def test_a_schedule_set_by_hand_is_exact(entries: list[tuple[int, int]], repeat: int) -> None:
    lookup, _ = _lookup()
    routes = Routes(LENGTHS, _symmetric([(a, b) for a in LENGTHS for b in LENGTHS]), SIZE)
    lookup.plan = Plan((2,) * (SIZE + 1), routes, Script(entries, repeat))
    expected = [k for k, steps in entries for _ in range(steps)] * repeat
    assert [lookup[1] for _ in expected] == expected


def test_reads_stay_right_while_another_thread_swaps_and_probes() -> None:
    banned = _symmetric([(4, 0), (2, 1)])
    routes = Routes(LENGTHS, banned, SIZE)
    lookup, failures = _lookup()
    lookup.plan = Plan(tuple(BOOT), routes)
    done = threading.Event()

    def swap() -> None:
        rng = random.Random(1)
        while not done.is_set():
            table = (0, *(rng.choice(LENGTHS) for _ in range(SIZE)))
            probe = Script([(rng.choice(LENGTHS), 3)], guarded=True) if rng.random() < 0.3 else None
            lookup.plan = Plan(table, routes, probe)

    thread = threading.Thread(target=swap)
    thread.start()
    rng = random.Random(2)
    read = [lookup[rng.randint(1, SIZE)] for _ in range(100_000)]
    done.set()
    thread.join()
    assert failures == []
    assert set(read) <= set(LENGTHS)
    assert not banned & set(pairwise(read))
    assert len(set(read)) > 1


@pytest.mark.parametrize("table", [(), (0, 9, 9, 9, 9, 9, 9), (0, None, 1, 1, 1, 1, 1)])
def test_after_an_exception_the_boot_table_answers(table: tuple[Any, ...]) -> None:
    lookup, failures = _lookup()
    lookup.plan = Plan(tuple(BOOT), Routes(LENGTHS, (), SIZE))
    assert lookup[1] == 4
    lookup.plan = Plan(table, Routes(LENGTHS, (), SIZE))
    assert [lookup[1], lookup[3], lookup[6]] == [4, 2, 0]
    assert len(failures) == 1


def test_it_is_a_list_to_everything_else() -> None:
    lookup, _ = _lookup()
    assert (len(lookup), list(lookup), lookup[1:3]) == (SIZE + 1, BOOT, [4, 4])
    with pytest.raises(IndexError):
        lookup[SIZE + 1]
