"""Synthetic acceptance: the survival over requests, its order, its draws."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tabletune.core.errors import CoreError
from tabletune.simulate.acceptance import AcceptanceModel, RequestQualities
from tests.core.strategies import survivals


@given(survivals(), st.floats(0, 3))
def test_requests_keep_the_mean_and_the_order(survival: np.ndarray, spread: float) -> None:
    model = AcceptanceModel(survival, spread)
    # The quantiles of a standard normal in fine steps stand for all requests.
    grid = np.linspace(-8, 8, 4001)
    weight = np.exp(-(grid**2) / 2)
    rows = model.request_survival(grid)
    assert (rows >= 0).all()
    assert (rows <= 1).all()
    assert (np.diff(rows, axis=1) <= 1e-12).all()
    assert (weight @ rows / weight.sum()) == pytest.approx(survival, abs=2e-3)


def test_a_spread_separates_good_from_bad_requests() -> None:
    rows = AcceptanceModel([0.7, 0.5], spread=1.0).request_survival(np.array([-1.0, 0.0, 1.0]))
    assert (np.diff(rows, axis=0) > 0.1).all()
    odds = rows / (1 - rows)
    assert odds[2] / odds[1] == pytest.approx(np.e)


def test_new_requests_have_the_models_survival() -> None:
    models = (AcceptanceModel([0.7, 0.4], spread=1.2), AcceptanceModel([0.2, 0.1]))
    qualities = RequestQualities(models, np.random.default_rng(0))
    rows = np.array([qualities.new(0)[1] for _ in range(4000)])
    assert rows.mean(axis=0) == pytest.approx([0.7, 0.4], abs=0.01)
    assert rows.std(axis=0).min() > 0.15
    quality, row = qualities.new(1)
    assert row.tolist() == pytest.approx([0.2, 0.1])
    assert isinstance(quality, float)


def test_expected_tokens_per_step_is_the_harmonic_mean() -> None:
    model = AcceptanceModel([0.6, 0.3], spread=1.0, proposal_rate=[0.5, 0.4])
    rows = model.request_survival(np.random.default_rng(0).normal(size=200_000))
    tokens = 1 + rows @ [0.5, 0.0] + rows @ [0.0, 0.4]
    assert model.expected_tokens_per_step()[2] == pytest.approx(1 / np.mean(1 / tokens), rel=1e-3)
    alike = AcceptanceModel([0.6, 0.3])
    assert alike.expected_tokens_per_step() == pytest.approx(alike.expected_tokens())


@pytest.mark.parametrize(
    "arguments",
    [([0.5, 0.6],), ([],), ([0.5], -1.0), ([0.5], float("nan")), ([0.5, 0.4], 0.0, [0.5])],
)
def test_impossible_models_are_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(CoreError):
        AcceptanceModel(*arguments)  # type: ignore[arg-type]
