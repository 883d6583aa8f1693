"""The dynamic programme against exhaustive search."""

from itertools import pairwise, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.segments import to_path, to_segments
from tabletune.core.transitions import breaks, cheapest_segments, forbidden_columns


def _cost(path: tuple[int, ...], loss: np.ndarray, share: float, near_tie: float):
    segments = to_segments(path)
    edges = sum(near_tie * max(1.0, share * s.first) for s in segments[1:])
    total = sum(loss[i, c] for i, c in enumerate(path))
    return sum(s.narrow(share) for s in segments), total + edges


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 7),
    pairs=st.sets(st.sampled_from([(0, 1), (2, 1), (0, 2)])),
    share=st.sampled_from([0.0, 0.25, 0.7, 1.0]),
    near_tie=st.sampled_from([0.0, 0.05]),
    gaps=st.floats(0, 0.5),
)
def test_nothing_cheaper_exists(seed, size, pairs, share, near_tie, gaps) -> None:
    rng = np.random.default_rng(seed)
    loss = rng.random((size, 3))
    loss[rng.random(loss.shape) < gaps] = np.inf
    forbidden = forbidden_columns((0, 1, 2), pairs)
    candidates = [
        _cost(path, loss, share, near_tie)
        for path in product(range(3), repeat=size)
        if all(np.isfinite(loss[i, c]) for i, c in enumerate(path))
        and not any(forbidden[a, b] for a, b in pairwise(path))
    ]
    found = cheapest_segments(loss, forbidden, share, near_tie)
    if not candidates:
        assert found is None
        return
    assert found is not None
    assert not breaks(found, forbidden)
    narrow, cost = _cost(tuple(to_path(found)), loss, share, near_tie)
    best_narrow, best_cost = min(candidates)
    assert narrow == best_narrow
    assert cost <= best_cost + 1e-9
