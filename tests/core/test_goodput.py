"""Expected tokens and goodput."""

import numpy as np
import pytest
from hypothesis import given

from tabletune.core.errors import CoreError
from tabletune.core.goodput import (
    expected_tokens,
    predicted_goodput_tok_s,
    time_per_output_token_s,
)

from .strategies import survivals


@given(survivals())
def test_expected_tokens_grow_by_at_most_one_per_guess(values: np.ndarray) -> None:
    tokens = expected_tokens(values)
    assert tokens[0] == 1.0
    assert np.all(np.diff(tokens) >= 0)
    assert np.all(np.diff(tokens) <= 1.0 + 1e-12)


@given(survivals(size=3), survivals(size=3))
def test_a_proposal_rate_only_lowers_them(values: np.ndarray, rate: np.ndarray) -> None:
    assert np.all(expected_tokens(values, rate) <= expected_tokens(values) + 1e-12)
    np.testing.assert_allclose(expected_tokens(values, np.ones(3)), expected_tokens(values))


def test_the_proposal_rate_weighs_each_position() -> None:
    tokens = expected_tokens([0.8, 0.5], proposal_rate=[0.5, 0.1])
    assert tokens.tolist() == pytest.approx([1.0, 1.4, 1.45])


def test_goodput_is_batch_size_over_time_per_output_token() -> None:
    assert predicted_goodput_tok_s(32, 2.2, 0.005) == pytest.approx(
        32 / time_per_output_token_s(2.2, 0.005)
    )


@pytest.mark.parametrize("values", [[0.5, 0.6], [1.2], [-0.1], [float("nan")]])
def test_rates_that_are_no_survival_are_refused(values: list[float]) -> None:
    with pytest.raises(CoreError, match="survival"):
        expected_tokens(values)


def test_proposal_rate_needs_one_value_per_position() -> None:
    with pytest.raises(CoreError, match="proposal_rate"):
        expected_tokens([0.5, 0.4], [1.0])


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf")])
def test_goodput_needs_a_real_step_time(time: float) -> None:
    with pytest.raises(CoreError, match="step_time_s"):
        predicted_goodput_tok_s(1, 1.0, time)
