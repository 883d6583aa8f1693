"""Boot tables: they name every length, at the least loss, and stay sound."""

from itertools import pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tabletune.core.boot_table import name_all_lengths, predicted_losses
from tabletune.core.errors import CoreError
from tabletune.core.goodput import expected_tokens
from tabletune.core.step_time import StepTimeEstimate
from tabletune.core.surface import StepTimeSurface

lengths_list = st.lists(st.integers(0, 4), min_size=1, max_size=7)
pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=3)


def sound(table: list[int], forbidden: list[tuple[int, int]]) -> bool:
    never = {frozenset(pair) for pair in forbidden}
    return all(a == b or frozenset((a, b)) not in never for a, b in pairwise(table))


@settings(max_examples=300, deadline=None)
@given(lengths_list, st.sets(st.integers(0, 4)), st.data())
def test_no_other_choice_of_single_batch_sizes_loses_less(
    table: list[int], wanted: set[int], data: st.DataObject
) -> None:
    """Against all choices, for tables small enough to try them."""
    cells = list(product(range(1, len(table) + 1), range(5)))
    shares = data.draw(
        st.lists(
            st.none() | st.floats(0, 1, allow_subnormal=False),
            min_size=len(cells),
            max_size=len(cells),
        )
    )
    share = dict(zip(cells, shares, strict=True))
    found = name_all_lengths(table, wanted, lambda b, k: share[b, k])
    missing = sorted(wanted - set(table))
    costs: list[float] = []
    for places in permutations(range(1, len(table) + 1), len(missing)):
        tried = list(table)
        for b, k in zip(places, missing, strict=True):
            tried[b - 1] = k
        losses = [share[b, k] for b, k in zip(places, missing, strict=True)]
        if None not in losses and set(table) <= set(tried):
            costs.append(sum(loss for loss in losses if loss is not None))
    assert (found.left_out == ()) == bool(costs)
    if costs:
        assert sum(p.loss for p in found.placements) == pytest.approx(min(costs))


@settings(max_examples=300, deadline=None)
@given(lengths_list, st.sets(st.integers(0, 4)), pairs)
def test_every_wanted_length_is_named_or_left_out_and_the_table_stays_sound(
    table: list[int], wanted: set[int], forbidden: list[tuple[int, int]]
) -> None:
    assume(sound(table, forbidden))
    found = name_all_lengths(table, wanted, lambda b, k: abs(k - b) / 10, forbidden)
    assert set(found.lengths) == (set(table) | wanted) - set(found.left_out)
    assert not set(found.left_out) & set(table)
    assert sound(list(found.lengths), forbidden)
    differing = [
        b for b, (old, new) in enumerate(zip(table, found.lengths, strict=True), 1) if old != new
    ]
    assert [p.batch_size for p in found.placements] == differing


def test_a_length_that_may_follow_nothing_is_left_out() -> None:
    found = name_all_lengths([3, 3, 0, 0], [0, 1, 2, 3], lambda b, k: 0.1, [(2, 3), (0, 2)])
    assert found.left_out == (2,)
    assert 1 in found.lengths


def test_many_lengths_in_a_large_table_are_placed_at_once() -> None:
    table = [5] * 600 + [0] * 424
    found = name_all_lengths(table, range(16), lambda b, k: 0.1, [(15, 0)])
    assert set(found.lengths) == set(range(16))


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(CoreError, match="dense table"):
        name_all_lengths([], [1], lambda b, k: 0.0)


def test_losses_are_shares_of_predicted_goodput() -> None:
    times = {(b, k): 1e-3 * (1 + 0.1 * k * b) for b in (1, 8) for k in (0, 2)}
    surface = StepTimeSurface.from_cells(
        {cell: StepTimeEstimate(t, t, t, 80, 0) for cell, t in times.items()}
    )
    tokens = expected_tokens([0.8, 0.5])
    loss = predicted_losses([2] * 8, surface, tokens)
    own, other = tokens[2] / times[8, 2], tokens[0] / times[8, 0]
    assert loss(8, 0) == pytest.approx(max(0.0, 1 - other / own))
    assert loss(1, 0) == pytest.approx(1 - (1 / times[1, 0]) / (tokens[2] / times[1, 2]))
    assert loss(8, 1) == 1.0  # never measured
    assert np.isclose(loss(1, 2), 0.0)
