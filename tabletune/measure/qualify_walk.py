"""Walks through draft lengths that visit every ordered pair."""

from collections.abc import Sequence


def all_switches(lengths: Sequence[int]) -> list[int]:
    """A closed walk that takes each ordered pair of distinct lengths exactly once.

    An Eulerian circuit of the complete digraph (Hierholzer's algorithm): n·(n−1)+1 lengths,
    the first repeated at the end. For a single length just that one.
    """
    nodes = sorted(set(lengths))
    if not nodes:
        raise ValueError("expected at least one draft length, found none; name those to qualify")
    # Taken from the end, so that large jumps come first.
    left = {k: [other for other in nodes if other != k] for k in nodes}
    stack, circuit = [nodes[0]], list[int]()
    while stack:
        if left[stack[-1]]:
            stack.append(left[stack[-1]].pop())
        else:
            circuit.append(stack.pop())
    return circuit[::-1]


def rotated(lengths: Sequence[int], turn: int) -> list[int]:
    """The lengths in a cyclic order that differs from turn to turn, direction included."""
    order = sorted(set(lengths), reverse=bool(turn % 2))
    start = (turn // 2) % len(order)
    return order[start:] + order[:start]


def back_and_forth(pairs: Sequence[tuple[int, int]], times: int) -> list[int]:
    """A walk that takes each of the given switches `times` times."""
    walk = list[int]()
    for old, new in pairs:
        walk += [old, new] * times
    return walk


def schedule(walk: Sequence[int], block_steps: int) -> list[tuple[int, int]]:
    """(length, steps) pairs for the engine; repeats in a row become one longer block."""
    pairs = list[tuple[int, int]]()
    for length in walk:
        if pairs and pairs[-1][0] == length:
            pairs[-1] = (length, pairs[-1][1] + block_steps)
        else:
            pairs.append((length, block_steps))
    return pairs
