"""Two sides at equal work: luck of acceptance and of prompts does not count."""

import numpy as np
import pytest

from bench.evaluation.equal_work import Work, done_in, ratio_at_equal_work
from tabletune.measure.metrics import Counters


def counters(generation_tok: float, drafts: float, prompt_tok: float) -> Counters:
    return Counters(generation_tok, drafts, 0.0, 0.0, (), 1.0, True, prompt_tok)


def windows(rng: np.random.Generator, step_s: float, count: int) -> list[Work]:
    """Of 64 requests: prompts of 16 tokens by chance, each holds all up by 12 ms."""
    found: list[Work] = []
    for _ in range(count):
        steps, prompts = int(rng.integers(240, 260)), int(rng.poisson(20))
        seconds = steps * step_s * float(rng.normal(1, 0.01)) + prompts * 0.012
        accepted = float(rng.normal(1.2, 0.02))
        found.append(Work(seconds, 64 * steps * (1 + accepted), 64 * steps, 16 * prompts))
    return found


def test_a_known_difference_is_found_in_much_luck() -> None:
    rng = np.random.default_rng(5)
    theirs, ours = windows(rng, 0.008, 60), windows(rng, 0.008 * 1.02, 60)
    found = ratio_at_equal_work(ours, theirs)
    # 2 % of a step's time, of a window that is 2.0 s of steps and 0.24 s of prompts.
    truth = (2.0 + 0.24) / (2.04 + 0.24)
    assert found["low"] < truth < found["high"]
    assert found["high"] - found["low"] < 0.012
    rates = np.log([a.rate_tok_s / b.rate_tok_s for a, b in zip(ours, theirs, strict=True)])
    assert 4 * rates.std() / np.sqrt(60) > 2 * (found["high"] - found["low"]), "tokens tell less"
    assert found["pairs"] == 60


def test_no_prompts_and_no_drafts() -> None:
    theirs = [Work(1.0, 100.0, 0.0, 0.0)] * 6
    ours = [Work(1.25, 100.0, 0.0, 0.0)] * 6
    assert ratio_at_equal_work(ours, theirs)["mean"] == pytest.approx(0.8)


@pytest.mark.parametrize("pairs", [6, 12])
def test_the_interval_holds_the_truth_as_often_as_it_says(pairs: int) -> None:
    truth, held = (2.0 + 0.24) / (2.04 + 0.24), 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        theirs = windows(rng, 0.008, pairs)
        found = ratio_at_equal_work(windows(rng, 0.008 * 1.02, pairs), theirs)
        held += found["low"] <= truth <= found["high"]
    assert held >= 181, "95 % of 200 are 190; fewer than 181 would be bad luck of one in 300"


def test_prompts_that_differ_by_rounding_alone_have_no_price() -> None:
    rng = np.random.default_rng(1)
    theirs = [Work(rng.normal(1, 0.01), 100.0, 70.0, 10.0) for _ in range(9)]
    ours = [Work(rng.normal(1, 0.01), 100.0, 70.0 * 1.1, 11.0 * 1.1) for _ in range(9)]
    plain = np.mean([w.seconds / w.drafts for w in theirs]) / np.mean(
        [w.seconds / w.drafts for w in ours]
    )
    assert ratio_at_equal_work(ours, theirs)["mean"] == pytest.approx(plain, abs=1e-3)


def test_one_unit_for_all_windows() -> None:
    """One window met no draft: all count by tokens."""
    theirs = [Work(1.0, 100.0, 50.0, 0.0)] * 6
    ours = [*[Work(1.0, 100.0, 50.0, 0.0)] * 5, Work(1.0, 100.0, 0.0, 0.0)]
    assert ratio_at_equal_work(ours, theirs)["mean"] == 1.0


def test_counters_that_stand_still_are_told() -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    with pytest.raises(TimeoutError, match="expected the engine to put out tokens"):
        done_in(lambda: counters(5.0, 0.0, 0.0), 1.0, lambda: clock[0], sleep)


@pytest.mark.parametrize("counts", [(5, 5), (7, 6)])
def test_too_little_is_told(counts: tuple[int, int]) -> None:
    one = Work(1.0, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="measure more pairs"):
        ratio_at_equal_work([one] * counts[0], [one] * counts[1])


def test_work_is_read_between_two_moves_of_the_counters() -> None:
    """Counters that move every 0.4 s, looked at now and then."""
    clock = [0.0]

    def look() -> Counters:
        clock[0] += 0.003
        steps = int(clock[0] / 0.4)
        return counters(8.0 * steps, 4.0 * steps, 1.0 * steps)

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    found = done_in(look, 3.0, lambda: clock[0], sleep)
    assert found.rate_tok_s == pytest.approx(20.0, rel=0.01)
    assert found.drafts == found.generation_tok / 2
    assert found.prompt_tok == found.generation_tok / 8
