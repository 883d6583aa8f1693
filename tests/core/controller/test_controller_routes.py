"""The way from one draft length to another round forbidden transitions."""

from tabletune.core.controller.routes import Routes

LENGTHS = (0, 1, 2, 4)
SIZE = 6


def test_a_stepping_stone_keeps_to_the_envelope() -> None:
    # 4 -> 0 is forbidden; over 2 or over 1; at batch size 3 only 1 is in the envelope.
    routes = Routes(LENGTHS, {(4, 0), (0, 4)}, SIZE, lambda b, k: b != 3 or k in (0, 1))
    assert [routes.next_length(3, last, 0) for last in (4, 1)] == [1, 0]
    assert routes.next_length(2, None, 0) == 0
    assert routes.next_length(2, 7, 0) == 0
    assert not routes.allows(3, 4)


def test_where_no_way_exists_the_last_length_stays() -> None:
    routes = Routes((0, 3), {(3, 0), (0, 3)}, SIZE)
    assert routes.next_length(1, 3, 0) == 3
    assert routes.next_length(1, 3, 3) == 3
