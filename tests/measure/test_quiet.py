"""Quiet grows while somebody looks, and ends with a step."""

from hypothesis import given
from hypothesis import strategies as st
from stepping_clock import SteppingClock

from tabletune.measure.quiet import LOOK_MOST_S, Quiet


def test_quiet_is_the_time_since_the_last_look_with_steps():
    clock = SteppingClock()
    quiet = Quiet(clock)
    for stepped, expected_s in [(False, 0.5), (False, 1.0), (True, 0.0), (False, 0.5)]:
        clock.sleep_s(0.5)
        quiet.look(stepped)
        assert quiet.quiet_s == expected_s


def test_a_machine_that_stood_still_counts_as_one_look():
    clock = SteppingClock()
    quiet = Quiet(clock)
    clock.sleep_s(3600.0)
    quiet.look(stepped=False)
    assert quiet.quiet_s == LOOK_MOST_S < 30


@given(st.lists(st.floats(0.0, 100.0), max_size=50))
def test_a_hang_is_found_after_as_many_looks_at_the_latest(between_s: list[float]):
    clock = SteppingClock()
    quiet = Quiet(clock)
    for seconds in between_s:
        clock.sleep_s(seconds)
        quiet.look(stepped=False)
    assert quiet.quiet_s <= min(clock.now_s() + 1e-6, len(between_s) * LOOK_MOST_S)
    long = sum(seconds >= LOOK_MOST_S for seconds in between_s)
    assert quiet.quiet_s >= long * LOOK_MOST_S
