"""Goodput over the plane: from an array as from single cells."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.errors import CoreError, NoTableError
from tabletune.core.goodput_map import goodput_map
from tabletune.core.surface import DenseStepTimes


@dataclass
class Cells:
    """Step times that are asked for one by one. times_s: NaN where not covered."""

    times_s: np.ndarray

    @property
    def draft_lengths(self):
        return tuple(range(0, 2 * self.times_s.shape[1], 2))

    def covered(self, batch_size, draft_length):
        return bool(~np.isnan(self.times_s[batch_size - 1, draft_length // 2]))

    def step_time_s(self, batch_size, draft_length):
        return float(self.times_s[batch_size - 1, draft_length // 2])


class Dense(Cells):
    def dense_step_time_s(self):
        return self.times_s


TIMES = st.integers(0, 2**32 - 1).map(
    lambda seed: np.where(
        (rng := np.random.default_rng(seed)).random((7, 3)) < 0.2,
        np.nan,
        rng.uniform(0.001, 0.1, (7, 3)),
    )
)


def asked(surface, tokens, size, allowed, envelope):
    try:
        return goodput_map(surface, tokens, size, allowed, envelope)
    except NoTableError as error:
        return str(error)


@given(
    TIMES,
    st.sampled_from([[1.0, 1.7, 2.2, 2.6, 2.9], [1.0, 1.5, 1.8], lambda b, k: 1 + k / (b + 1)]),
    st.integers(1, 7),
    st.sampled_from([None, (0, 2), (0,)]),
    st.sampled_from([None, lambda b, k: b * (k + 1) <= 20]),
)
def test_an_array_gives_what_single_cells_give(times_s, tokens, size, allowed, envelope):
    cells = asked(Cells(times_s), tokens, size, allowed, envelope)
    dense = asked(Dense(times_s), tokens, size, allowed, envelope)
    if isinstance(cells, str):
        assert dense == cells
        return
    assert dense.lengths == cells.lengths
    assert np.array_equal(dense.goodput_tok_s, cells.goodput_tok_s)
    assert np.array_equal(dense.usable, cells.usable)


def test_by_hand():
    surface = Cells(np.array([[0.01, 0.02], [0.01, np.nan]]))
    assert not isinstance(surface, DenseStepTimes)
    assert isinstance(Dense(surface.times_s), DenseStepTimes)
    found = goodput_map(surface, [1.0, 1.5, 2.5], 2)
    assert found.goodput_tok_s.tolist() == [[100.0, 125.0], [200.0, 0.0]]
    assert found.usable.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.inf])
def test_a_time_that_is_none_is_refused(wrong):
    with pytest.raises(CoreError, match="a finite time > 0"):
        goodput_map(Dense(np.array([[0.01, wrong]])), [1.0, 1.5, 2.5], 1)


def test_a_surface_without_lengths_has_no_table():
    with pytest.raises(NoTableError, match="no covered and allowed draft length"):
        goodput_map(Cells(np.zeros((2, 0))), [1.0, 1.5], 2)
    with pytest.raises(NoTableError, match="no covered and allowed draft length"):
        goodput_map(Dense(np.zeros((2, 0))), lambda b, k: 1.0, 2, None, lambda b, k: True)


def test_a_covered_cell_without_a_time_is_refused():
    class Broken(Cells):
        def covered(self, batch_size, draft_length):
            return True

    with pytest.raises(CoreError, match="a finite time > 0"):
        goodput_map(Broken(np.array([[0.01, np.nan]])), [1.0, 1.5, 2.5], 1)


def test_more_batch_sizes_than_the_array_has_are_asked_for_one_by_one():
    surface = Dense(np.array([[0.01, 0.02]]))
    with pytest.raises(IndexError):
        goodput_map(surface, [1.0, 1.5, 2.5], 2)
