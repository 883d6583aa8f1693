"""Keeps direct labels apart."""

import math


def spread(
    positions: list[float], gap: float, low: float = -math.inf, high: float = math.inf
) -> list[float]:
    """Positions at least `gap` apart, each as near to its own as that allows, order kept.

    Neighbours that are too close are pooled and centred on their mean (as in isotonic
    regression), which minimises the squared shifts. All stay within `low` … `high` where there
    is room for them.

    >>> spread([0.0, 0.1, 5.0], 1.0)
    [-0.45, 0.55, 5.0]
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    blocks: list[tuple[float, int]] = []  # (mean of position − own offset, members)
    for rank, index in enumerate(order):
        mean, members = positions[index] - rank * gap, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean = (before * count + mean * members) / (count + members)
            members += count
        blocks.append((mean, members))
    result = [0.0] * len(positions)
    rank = 0
    for mean, members in blocks:
        for _ in range(members):
            above = (len(positions) - 1 - rank) * gap
            result[order[rank]] = max(low + rank * gap, min(high - above, mean + rank * gap))
            rank += 1
    return result
