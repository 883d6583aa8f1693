"""When a source is asked: jitter, back-off, and clocks that jump."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune_vllm.source import Unchanged, Unreachable
from tabletune_vllm.source.schedule import JITTER, LONGEST_BACK_OFF_S, Schedule
from tests.faulty_server import FaultyServer
from tests.plugin.source import following
from tests.plugin.source.following import Channel


@given(st.integers(0, 2**32), st.floats(0.1, 600.0), st.integers(0, 40))
def test_pauses_grow_with_failures_and_are_jittered(
    seed: int, interval_s: float, failures: int
) -> None:
    schedule = Schedule(interval_s, random.Random(seed))
    assert schedule.due(5.0)
    for _ in range(failures):
        schedule.asked(0.0, answered=False)
    schedule.asked(0.0, answered=failures == 0) if failures == 0 else None
    longest_s = max(interval_s, LONGEST_BACK_OFF_S)
    pause_s = min(interval_s * 2.0**failures, longest_s)
    assert (1 - JITTER) * pause_s <= schedule.next_s <= (1 + JITTER) * pause_s
    schedule.asked(0.0, answered=True)
    assert schedule.next_s <= (1 + JITTER) * interval_s


def test_engines_that_start_together_do_not_ask_together() -> None:
    times: set[float] = set()
    for seed in range(100):
        schedule = Schedule(10.0, random.Random(seed))
        schedule.asked(0.0, answered=True)
        times.add(schedule.next_s)
    assert max(times) - min(times) > 3.0
    assert len(times) == 100


@pytest.mark.parametrize("jump_s", [-1e9, -3600.0, 3600.0, 1e9])
def test_a_clock_that_jumps_costs_at_most_one_poll(folder_channel: Channel, jump_s: float) -> None:
    folder_channel.promote()
    follower = folder_channel.follower()
    following.given(follower.poll(0.0))
    second = folder_channel.promote()
    assert follower.due(jump_s)
    assert following.given(follower.poll(jump_s)).name == second
    assert not follower.due(jump_s + 5.0)
    assert follower.poll(jump_s + 5.0) == Unchanged()
    third = folder_channel.promote()
    assert following.given(follower.poll(jump_s + 20.0)).name == third


def test_a_source_that_is_down_is_asked_ever_more_rarely(
    folder_channel: Channel, web: FaultyServer
) -> None:
    folder_channel.promote()
    follower = folder_channel.follower(web.address)
    following.given(follower.poll(0.0))
    web.faults.status = 503
    web.requests.clear()
    for second in range(20, 620):
        follower.poll(float(second))
    asked = len(web.requests)
    assert 10 <= asked <= 17  # at every poll it would be 60
    assert follower.status()["failures"] == asked
    web.faults.status = 0
    answers = [follower.poll(float(second)) for second in range(620, 700)]
    assert not any(isinstance(answer, Unreachable) for answer in answers)
    assert follower.status()["failures"] == 0
