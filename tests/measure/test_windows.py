from functools import partial

import numpy as np
import pytest
from closed_loop_engine import Behaviour, LoopClock, LoopEngine, default_step_time_s, open_loop

from tabletune.measure.load import LoadRequest
from tabletune.measure.rounds import staggered
from tabletune.measure.steps import StepReader
from tabletune.measure.windows import (
    LengthNotFollowedError,
    LoadEndedError,
    PolicyRun,
    WindowOptions,
    metrics_window,
    ramp_up,
    step_window,
)

SURVIVAL = (0.8, 0.6, 0.4, 0.25)
REQUESTS = staggered([LoadRequest("x" * 400, 100)], 8)
OPTIONS = WindowOptions(window_s=4.0, metrics_window_s=10.0)


def expected_rate(batch_size, length):
    tokens = 1 + sum(SURVIVAL[:length])
    return batch_size * tokens / default_step_time_s(batch_size, length)


def run_of(engine, length=2, **fields):
    lookup = fields.pop("lookup", (length,) * 65)
    return PolicyRun("p", engine, "m", lambda: engine.pin(length), lookup, **fields)


@pytest.mark.parametrize("length", [0, 1, 4])
def test_both_instruments_agree_with_the_truth(length):
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(SURVIVAL))
    run = run_of(engine, length)
    run.apply()
    with open_loop(engine, "m", REQUESTS, 8) as load:
        ramp_up(run, load, 8, OPTIONS, clock)
        by_steps = step_window(run, StepReader(engine), load, OPTIONS, clock)
        by_metrics = metrics_window(engine, load, OPTIONS, clock)
    # A request's first token comes from its prompt's step, its last step is cut short.
    assert by_steps.lengths == {length}
    assert by_steps.rate_tok_s == pytest.approx(expected_rate(8, length), rel=0.05)
    assert by_metrics.rate_tok_s == pytest.approx(by_steps.rate_tok_s, rel=0.05)
    assert by_metrics.running_low == by_metrics.running_high == 8
    if length:
        assert by_metrics.counts.draft_tok / by_metrics.counts.drafts == length


def test_metrics_window_costs_at_most_the_polling_interval():
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(SURVIVAL, step_time_s=lambda b, k: 0.25))
    engine.pin(0)
    with open_loop(engine, "m", REQUESTS, 1) as load:
        clock.sleep_s(1.07)
        window = metrics_window(engine, load, WindowOptions(metrics_window_s=3.1), clock)
    # 3.1 s hold 12.4 steps; counting whole steps over 3.1 s would be off by up to 8 %.
    assert window.rate_tok_s == pytest.approx(4.0, rel=0.015)


def test_steps_before_the_swap_has_settled_do_not_count():
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour((1.0,) * 4, step_time_s=lambda b, k: 0.1))
    engine.pin(4)
    with open_loop(engine, "m", [LoadRequest("x", 100_000)], 1) as load:
        clock.sleep_s(2.0)
        options = WindowOptions(window_s=1.0, min_steps=5)
        window = step_window(run_of(engine, 0), StepReader(engine), load, options, clock)
    assert window.rate_tok_s == pytest.approx(
        10.0
    )  # one token a step; a step with drafts would show


def test_window_is_as_long_as_asked_and_not_longer():
    clock = LoopClock()
    engine = LoopEngine(clock)
    seen = []
    with open_loop(engine, "m", REQUESTS, 4) as load:
        reader = StepReader(engine)
        for _ in range(3):
            begin_s = clock.now_s()
            step_window(run_of(engine), reader, load, WindowOptions(window_s=0.5), clock)
            seen.append(clock.now_s() - begin_s)
    assert max(seen) < 0.5 + 0.17  # three steps to settle, two for the ends
    assert min(seen) >= 0.5


def test_window_has_enough_steps_even_if_they_are_slow():
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(step_time_s=lambda b, k: 0.5))
    with open_loop(engine, "m", REQUESTS, 1) as load:
        step_window(run_of(engine), StepReader(engine), load, WindowOptions(window_s=0.5), clock)
    assert len(engine.steps()) >= 13


def test_lost_steps_start_the_window_again():
    clock = LoopClock()
    engine = LoopEngine(clock)
    with open_loop(engine, "m", REQUESTS, 8) as load:
        clock.sleep_s(1.0)
        reader = StepReader(engine)
        engine.lose_at = reader.next_seq + 20
        window = step_window(run_of(engine), reader, load, WindowOptions(window_s=2.0), clock)
    assert engine.lose_at == 0
    assert window.rate_tok_s == pytest.approx(expected_rate(8, 2), rel=0.08)


def test_engine_that_does_not_follow_is_named():
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(ignores_length=3))
    with open_loop(engine, "m", REQUESTS, 4) as load, pytest.raises(LengthNotFollowedError) as e:
        step_window(run_of(engine, 1), StepReader(engine), load, OPTIONS, clock)
    assert (e.value.batch_size, e.value.expected, e.value.found) == (4, 1, 3)


@pytest.mark.parametrize("by_metrics", [False, True])
def test_load_that_ends_is_told_with_its_error(by_metrics):
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(stops_after_s=1.0))
    with open_loop(engine, "m", REQUESTS, 4) as load:
        clock.sleep_s(1.0)
        run, reader = run_of(engine), StepReader(engine)
        window = (
            partial(metrics_window, engine, load)
            if by_metrics
            else partial(step_window, run, reader, load)
        )
        with pytest.raises(LoadEndedError, match="connection refused"):
            window(OPTIONS, clock)


def test_ramp_up_waits_for_decoding_and_not_for_requests_that_never_run():
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(prefill_s_per_tok=0.001, max_num_seqs=16))
    with open_loop(engine, "m", REQUESTS, 40) as load:
        begin_s = clock.now_s()
        ramp_up(run_of(engine, lookup=()), load, 40, OPTIONS, clock)
        assert 1.6 < clock.now_s() - begin_s < 6.0  # 16 prompts of 100 tokens take 1.6 s
    with open_loop(engine, "m", REQUESTS, 40) as load:
        begin_s = clock.now_s()
        ramp_up(run_of(engine, lookup=(0,) * 17), load, 40, OPTIONS, clock)
        assert clock.now_s() - begin_s < 2.6


def test_stream_spreads_the_ends_of_its_first_requests():
    stream = staggered([LoadRequest("a", 64), LoadRequest("b", 64)], 8)
    assert [r.max_tokens for r in stream[:10]] == [8, 16, 24, 32, 40, 48, 56, 64, 64, 64]
    assert [r.prompt for r in stream[:4]] == ["a", "b", "a", "b"]
    assert np.all([r.max_tokens == 64 for r in stream[8:]])
