"""Scores with prompts priced alike: what they are made to leave out, they leave out."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest

from bench.evaluation.again import summarised
from bench.evaluation.prompts_apart import by_length, fit, score, shares_of_best
from bench.evaluation.shares import summarise_load

STEP_S = {"fixed 0": 0.006, "fixed 2": 0.009, "tuned table": 0.009}
TOKENS = {"fixed 0": 64.0, "fixed 2": 128.0, "tuned table": 128.0}
EXTRA_S = 0.015


def window(policy: str, prompt_steps: int, noise: float = 0.0, boot: str = "b") -> dict[str, Any]:
    """A window of 100 steps, `prompt_steps` of them with a prompt. noise: of those, a share."""
    seconds = 100 * STEP_S[policy] + prompt_steps * EXTRA_S * (1 + noise)
    tokens = 100 * TOKENS[policy]
    rate, plain = tokens / seconds, TOKENS[policy] / STEP_S[policy]
    length = "0" if policy == "fixed 0" else "2"
    figures = {"rate_tok_s": rate, "steadied_tok_s": rate, "decode_tok_s": plain}
    figures["user_tok_s"] = 1.0
    figures |= {"mean_batch_size": 64.0, "mean_step_time_s": seconds / 100}
    counts = {"steps": 100, "prefill_steps": prompt_steps, "output_tok": round(tokens)}
    facts = {"policy": policy, "boot": boot, "seconds": seconds, "lengths": {length: 1.0}}
    return {**facts, **figures, **counts, "ungraphed_steps": 0, "failed": 0}


def rounds(noise: float = 0.0) -> list[dict[str, Any]]:
    """Four rounds; the tuned table, the same as fixed 2, happens to meet more prompts."""
    rng = np.random.default_rng(3)
    met = {"fixed 0": (5, 9, 6, 8), "fixed 2": (5, 7, 6, 8), "tuned table": (20, 25, 17, 22)}
    return [
        {name: window(name, met[name][i], noise * rng.normal()) for name in STEP_S}
        for i in range(4)
    ]


def every(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [window for cells in found for window in cells.values()]


def test_the_extra_time_of_a_prompt_is_found() -> None:
    cost = fit(every(rounds()))
    assert cost.extra_s == pytest.approx(EXTRA_S)
    assert cost.residual == pytest.approx(0, abs=1e-9)
    assert fit(every(rounds(noise=0.01))).extra_s == pytest.approx(EXTRA_S, rel=0.1)
    noisy = fit(every(rounds(noise=0.3)))
    assert noisy.extra_s == pytest.approx(EXTRA_S, rel=0.2)
    assert 0.1 < noisy.residual < 0.6


def test_a_length_whose_prompts_cost_more_keeps_that() -> None:
    found = rounds(noise=0.05)
    for cells in found:
        slow = cells["fixed 0"]
        slow["seconds"] += slow["prefill_steps"] * 2 * EXTRA_S
        slow["rate_tok_s"] = slow["steadied_tok_s"] = slow["output_tok"] / slow["seconds"]
    cost = fit(every(found))
    assert cost.of_length[0] == pytest.approx(3 * EXTRA_S, rel=0.1)
    assert cost.of_length[2] == pytest.approx(EXTRA_S, rel=0.1)
    assert cost.extra_of({"lengths": {"0": 0.25, "2": 0.75}}) == pytest.approx(
        0.25 * cost.of_length[0] + 0.75 * cost.of_length[2]
    )


def test_lengths_that_differ_by_noise_are_priced_alike() -> None:
    cost = fit(every(rounds(noise=0.3)))
    apart = abs(cost.of_length[0] - cost.of_length[2])
    assert apart < 0.25 * cost.extra_s


def test_windows_without_a_step_away_from_prompts_count_as_measured() -> None:
    alone = window("fixed 2", 100) | {"decode_tok_s": 0.0}
    cost = fit([*every(rounds()), alone])
    assert score(alone, cost) == alone["rate_tok_s"]
    assert fit([alone]).extra_s == 0.0


def test_luck_with_prompts_does_not_count() -> None:
    found = summarise_load(rounds(), list(STEP_S), open_load=False)
    tuned = found["policies"]["tuned table"]
    assert tuned["of_best_fixed"][0] < 0.86, "as measured it looks worse than what it is"
    assert tuned["at_equal_prompts"] == [1.0, 1.0, 1.0]
    assert found["best_fixed_at_equal_prompts"] == "fixed 2"


def test_the_score_by_hand() -> None:
    cost = fit(every(rounds()))
    per_tok = sum(w["prefill_steps"] for w in every(rounds())) / (4 * (6400 + 2 * 12_800))
    assert cost.per_tok == pytest.approx(per_tok)
    expected = 128 / (0.009 + EXTRA_S * per_tok * 128)
    assert score(window("fixed 2", 3), cost) == pytest.approx(expected)
    assert score(window("fixed 2", 30), cost) == pytest.approx(expected)


def test_windows_of_one_length_are_pooled() -> None:
    found = rounds(noise=0.2)
    mixed = window("fixed 2", 4) | {"policy": "bandit", "lengths": {"2": 0.9, "0": 0.1}}
    cost = fit(every(found))
    windows = [*every(found), mixed]
    pooled = by_length(windows, cost)
    assert {length: len(scores) for length, scores in pooled.items()} == {0: 4, 2: 8}
    shares = shares_of_best(windows, fit(windows), np.random.default_rng(0))
    assert shares[2] == [1.0, 1.0, 1.0]
    assert shares[0][1] < shares[0][0] < shares[0][2] < 1


def test_the_interval_covers_the_truth_although_prices_are_fitted() -> None:
    """Six windows a length, prompts whose price differs by a quarter from window to window."""
    covered, rng = 0, np.random.default_rng(5)
    per_tok = (6 * 5 + 6 * 10) / (6 * 100 * (TOKENS["fixed 0"] + TOKENS["fixed 2"]))
    took_s = [STEP_S[n] / TOKENS[n] + EXTRA_S * per_tok for n in ("fixed 0", "fixed 2")]
    wanted = took_s[1] / took_s[0]
    for _ in range(40):
        windows = [
            window(name, prompts, 0.25 * rng.normal())
            for name, prompts in (("fixed 0", 5), ("fixed 2", 10))
            for _ in range(6)
        ]
        low, high = shares_of_best(windows, fit(windows), rng, resamples=200)[0][1:]
        covered += low <= wanted <= high
    assert covered >= 30


def test_one_window_a_length_prices_all_alike() -> None:
    cost = fit([window("fixed 0", 10, 0.5), window("fixed 2", 10, -0.5)])
    assert set(cost.of_length.values()) == {cost.extra_s}
    assert cost.residual == 0.0


def test_figures_can_be_made_anew_from_the_file() -> None:
    first = summarise_load(rounds(noise=0.2), list(STEP_S), open_load=False)
    again = summarised(json.loads(json.dumps({"load": "closed 64", **first})))
    assert {name: again[name] for name in first} == first


def test_the_recorded_files_figures_are_those_of_their_windows() -> None:
    folder = pathlib.Path(__file__).parents[2] / "bench" / "results"
    for path in folder.glob("h200_*_policies.json"):
        for load in json.loads(path.read_text())["loads"]:
            again = json.loads(json.dumps(summarised(load)))
            assert again["policies"] == load["policies"], "run python -m bench.evaluation.again"
