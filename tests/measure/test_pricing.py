"""Windows of a validation at one price of prompts: narrower intervals that hold the truth."""

import numpy as np
import pytest

from tabletune.core.prompt_price import PromptedWindow
from tabletune.measure.judge import compare
from tabletune.measure.measurements import Key, Measurements
from tabletune.measure.pricing import pricing_of, prompted_window
from tabletune.measure.steps import StepBatch
from tabletune.records.policy import CANDIDATE, fixed_policy
from tabletune.records.verdict import Margins

STEP_S, TOKENS = {2: 0.0100, 3: 0.0118}, {2: 2.22, 3: 2.56}
EXTRA_S = 0.0125


def steps_of(interval_s: list[float], prefills: list[int]) -> StepBatch:
    """A window's steps, behind the one that only marks its begin."""
    count = len(interval_s) + 1
    zeros, one = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
    times = np.array([np.nan, *interval_s])
    return StepBatch(
        seq=np.arange(count),
        time_s=np.concatenate([[0.0], np.cumsum(interval_s)]),
        interval_s=times,
        batch_size=one,
        draft_length=2 * one,
        verified_length=2 * one,
        drafted_tok=2 * one,
        scheduled_tok=3 * one,
        prefill_requests=np.array([0, *prefills]),
        output_tok=2 * one,
        request_steps=one,
        graph_mode=2 * one,
        padded_tok=3 * one,
        drafted_through=np.stack([zeros, zeros], axis=1),
        accepted_through=np.stack([zeros, zeros], axis=1),
    )


def window(rng: np.random.Generator, length: int, told: bool = True) -> tuple[float, object]:
    """One of 200 steps at 128 requests: its rate, and its parts if it tells them."""
    prompts = int(rng.poisson(70 / TOKENS[length] * TOKENS[2]))
    plain_s = STEP_S[length] * rng.normal(1, 0.015)
    seconds = 200 * plain_s + prompts * EXTRA_S * rng.normal(1, 0.3)
    tokens = 128 * 200 * TOKENS[length]
    parts = PromptedWindow(tokens, seconds, 200, prompts, plain_s, length) if told else None
    return tokens / seconds, parts


def measured(rng: np.random.Generator, told: bool = True, rounds: int = 6) -> Measurements:
    """The candidate runs length 3."""
    found = Measurements()
    for number in range(rounds):
        for policy, length in ((CANDIDATE, 3), (fixed_policy(2), 2)):
            rate, parts = window(rng, length, told)
            series = found.add(Key(policy, 128), number, rate, "a", "measured")
            series.note_steps([length], {128: 200})
            series.parts[number] = parts  # type: ignore[assignment]
    return found


def truth() -> float:
    """Tokens per second at the mean share of prompts, length 3 over length 2."""
    rates = {
        k: TOKENS[k] / (STEP_S[k] + 70 / TOKENS[k] * TOKENS[2] / 200 * EXTRA_S) for k in (2, 3)
    }
    return rates[3] / rates[2]


def test_the_interval_holds_the_truth_and_is_narrower() -> None:
    widths: dict[bool, list[float]] = {True: [], False: []}
    held = 0
    for seed in range(60):
        for told in (True, False):
            found = measured(np.random.default_rng(seed), told)
            (one,) = compare(found, 128, Margins(), np.random.default_rng(0))
            widths[told].append(one.high - one.low)
            held += told and one.low <= truth() <= one.high
    assert held >= 53, "95 % of 60 are 57; fewer than 53 would be bad luck of one in a thousand"
    assert np.mean(widths[True]) < 0.7 * np.mean(widths[False])


def test_where_prompts_cost_little_all_steps_tell_more_than_some() -> None:
    rng = np.random.default_rng(5)
    series = [
        [
            PromptedWindow(1e4, 1.0 * rng.normal(1, 0.05), 100, 30, 0.01 * rng.normal(1, 0.1), 2)
            for _ in range(8)
        ]
        for _ in range(3)
    ]
    assert pricing_of(series, rng) is None


def test_windows_that_do_not_tell_leave_all_as_measured() -> None:
    found = measured(np.random.default_rng(1))
    found.series[Key(CANDIDATE, 128)].parts[0] = None
    assert found.pricing(128, np.random.default_rng(0)) is None
    (one,) = compare(found, 128, Margins(), np.random.default_rng(0))
    pair = found.pair(CANDIDATE, fixed_policy(2), 128)
    assert one.ratio == pytest.approx(np.mean(pair.first) / np.mean(pair.second))


def test_windows_without_prompts_need_no_price() -> None:
    parts = PromptedWindow(100.0, 1.0, 100, 0, 0.01, 2)
    assert pricing_of([[parts, parts]], np.random.default_rng(0)) is None
    assert pricing_of([], np.random.default_rng(0)) is None


def test_what_is_drawn_for_the_price_moves_no_later_chance() -> None:
    rng, other = np.random.default_rng(7), np.random.default_rng(7)
    found = measured(np.random.default_rng(1))
    assert found.pricing(128, rng.spawn(1)[0]) is not None
    assert rng.random() == other.random()


def test_a_window_is_told_apart_by_its_steps() -> None:
    prefills = [0] * 30 + [1] + [0] * 10 + [2, 1] + [0] * 7
    interval_s = [0.010] * 29 + [0.013, 0.025] + [0.010] * 9 + [0.014, 0.030, 0.024] + [0.010] * 7
    steps = steps_of(interval_s, prefills)
    found = prompted_window(steps, frozenset({2}))
    assert found is not None
    assert (found.steps, found.prompt_steps, found.length) == (50, 3, 2)
    assert found.plain_step_s == pytest.approx(0.010)
    extra_s = 0.003 + 0.015 + 0.004 + 0.020 + 0.014
    assert found.over_s == pytest.approx(extra_s / 3)
    assert prompted_window(steps, frozenset({2, 3})).length is None  # type: ignore[union-attr]


def test_too_few_steps_away_from_prompts_tell_nothing() -> None:
    # Of every three steps one holds a prompt, one comes right before it, one is away from both.
    assert prompted_window(steps_of([0.01] * 57, [1, 0, 0] * 19), frozenset({2})) is None
    assert prompted_window(steps_of([0.01] * 66, [1, 0, 0] * 22), frozenset({2})) is not None
    assert prompted_window(steps_of([0.01] * 400, [1] * 380 + [0] * 20), frozenset({2})) is None
