"""The price of a step with a prompt: found in noise, shrunk where lengths do not differ."""

import numpy as np
import pytest

from tabletune.core.prompt_price import PromptedWindow, price, prices_drawn, rate_at

STEP_S, EXTRA_S = {1: 0.008, 2: 0.010, 4: 0.013}, 0.0125
TOKENS = {1: 1.72, 2: 2.22, 4: 2.79}


def window(rng, length, noise=0.25, extra_s=EXTRA_S, prompts=60):
    """Of 200 steps; what its prompts take differs from window to window by `noise`."""
    met = int(rng.poisson(prompts))
    plain_s = STEP_S[length] * rng.normal(1, 0.01)
    seconds = 200 * plain_s + met * extra_s * rng.normal(1, noise)
    return PromptedWindow(128 * 200 * TOKENS[length], seconds, 200, met, plain_s, length)


def test_it_finds_what_prompts_cost():
    rng = np.random.default_rng(1)
    windows = [window(rng, k) for _ in range(8) for k in STEP_S]
    found = price(windows)
    assert found.extra_s == pytest.approx(EXTRA_S, rel=0.1)
    assert 0.15 < found.residual < 0.35
    assert found.of(None) == found.extra_s
    for length in STEP_S:
        assert found.of(length) == pytest.approx(EXTRA_S, rel=0.15)


def test_a_length_whose_prompts_run_without_graphs_keeps_its_price():
    rng = np.random.default_rng(2)
    windows = [
        window(rng, k, noise=0.1, extra_s=0.030 if k == 4 else 0.013)
        for _ in range(8)
        for k in STEP_S
    ]
    found = price(windows)
    assert found.of(4) == pytest.approx(0.030, rel=0.1)
    assert found.of(1) == pytest.approx(0.013, rel=0.15)


def test_rates_at_one_price_differ_by_much_less():
    rng = np.random.default_rng(3)
    windows = [window(rng, 2) for _ in range(200)]
    found = price(windows)
    raw = np.array([w.tokens / w.seconds for w in windows])
    priced = np.array([rate_at(w, found) for w in windows])
    assert priced.mean() == pytest.approx(raw.mean(), rel=0.01)
    assert priced.std() < 0.5 * raw.std()


def test_without_prompts_a_rate_is_what_was_measured():
    alone = PromptedWindow(1000, 2.0, 100, 0, 0.02, 1)
    found = price([alone])
    assert (found.extra_s, found.of_length, found.residual) == (0.0, {}, 0.0)
    assert rate_at(alone, found) == 500.0


def test_drawn_prices_scatter_as_the_price_does():
    """The spread over draws of one set against the spread over sets."""
    rng = np.random.default_rng(4)
    sets = [[window(rng, k) for _ in range(6) for k in STEP_S] for _ in range(200)]
    truly = np.std([price(windows).extra_s for windows in sets])
    drawn = [np.std([p.extra_s for p in prices_drawn(one, rng, 100)]) for one in sets[:20]]
    assert np.mean(drawn) == pytest.approx(truly, rel=0.25)
