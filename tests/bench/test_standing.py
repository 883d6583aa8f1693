"""What is said to be reached."""

from bench.evaluation.standing import at_least, at_most, within_s


def test_reached_is_said_of_all_that_was_found() -> None:
    assert at_least([("here", 0.98), ("there", 0.97)], 0.97) == "reached"
    assert at_most([("here", 0.02)], 0.02) == "reached"
    assert within_s([("run", 60.0)], 60) == "reached"


def test_what_misses_is_named() -> None:
    found = [("here", 0.98), ("there", 0.969), ("yonder", 0.5)]
    assert at_least(found, 0.97) == "not reached in 2 of 3: 96.9 % (there); 50.0 % (yonder)"
    assert at_most([("here", 0.081)], 0.02) == "not reached: 8.1 % (here)"
    assert within_s([("run", 60.4)], 60) == "not reached: 60.4 s (run)"


def test_nothing_found_is_not_reached() -> None:
    assert at_least([], 0.97) == at_most([], 0.02) == within_s([], 60) == "not run"
