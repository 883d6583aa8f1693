"""An outage is told once a minute, and its end once; pauses grow and stay bounded."""

from datetime import timedelta

from tabletune.maintain.outage import LONGEST_PAUSE_S, SAY_EVERY_S, Every, Outage
from tests.maintain.scenes import FixedClock


def test_it_is_said_at_once_then_once_a_minute_and_at_the_end() -> None:
    clock, said = FixedClock(), list[str]()
    outage = Outage("the server", clock, said.append)
    assert not outage.ended(), "there was none"
    for second in range(180):
        outage.failed(OSError(f"try {second}"))
        clock.now += timedelta(seconds=1)
    assert len(said) == 3
    assert said[0].startswith(
        "the server does not answer as it should, for 0 s now (OSError: try 0)"
    )
    assert "for 60 s now (OSError: try 60)" in said[1]
    assert outage.ended()
    assert said[3:] == ["the server answers again after 3 min"]
    assert not outage.ended()
    outage.failed(OSError("again"))
    assert "for 0 s now" in said[4], "the next outage is another one"


def test_slow_tries_are_each_said() -> None:
    clock, said = FixedClock(), list[str]()
    outage = Outage("the server", clock, said.append)
    for _ in range(5):
        outage.failed(TimeoutError("slow"))
        clock.now += timedelta(seconds=SAY_EVERY_S + 2)
    assert len(said) == 5


def test_pauses_double_up_to_a_bound_and_begin_anew() -> None:
    clock = FixedClock()
    outage = Outage("the server", clock, lambda text: None)
    for _ in range(2000):
        outage.failed(OSError())
        outage.pause()
    assert clock.slept_s[:5] == [2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_S]
    assert set(clock.slept_s[4:]) == {LONGEST_PAUSE_S}
    outage.ended()
    outage.failed(OSError())
    outage.pause()
    assert clock.slept_s[-1] == 2.0


def test_now_and_then_is_counted_from_the_last_time() -> None:
    clock = FixedClock()
    every = Every(300.0, clock)
    due: list[int] = []
    for second in range(0, 1000, 50):
        clock.now += timedelta(seconds=50)
        if every.due():
            due.append(second + 50)
    assert due == [300, 600, 900]
