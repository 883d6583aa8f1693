"""Tables are read without any coercion and written back exactly."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune_vllm.errors import RequestError
from tabletune_vllm.tables import dense_from_ranges, ranges_from_dense


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_ranges_and_dense_round_trip(lengths: list[int]) -> None:
    dense = [0, *lengths]
    assert dense_from_ranges(ranges_from_dense(dense), len(lengths), 5) == dense


@pytest.mark.parametrize(
    "ranges",
    [
        None,
        [],
        {},
        "x",
        [[1, 8]],
        [[1, 8, 2.0]],
        [[1, 8, True]],
        [[True, 8, 1]],
        [["1", 8, 1]],
        [[1, 8, float("nan")]],
        [[2, 8, 1]],
        [[0, 8, 1]],
        [[1, 9, 1]],
        [[1, 7, 1]],
        [[1, 4, 1], [6, 8, 1]],
        [[1, 4, 1], [4, 8, 1]],
        [[5, 8, 1], [1, 4, 1]],
        [[1, 0, 1], [1, 8, 1]],
        [[1, 8, -1]],
        [[1, 8, 4]],
        [(1, 8, 1)],
    ],
)
def test_everything_vllm_would_coerce_is_refused(ranges: Any) -> None:
    with pytest.raises(RequestError):
        dense_from_ranges(ranges, 8, 3)
