from functools import partial

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
REQUESTS = staggered([LoadRequest(f"{i}" * 400, 100) for i in range(8)], 8, 0, 1000)
OPTIONS = WindowOptions()
WORK_TOK = 2000


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
        by_steps = step_window(run, StepReader(engine), load, WORK_TOK, OPTIONS, clock)
        by_metrics = metrics_window(engine, load, WORK_TOK, OPTIONS, clock)
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
        window = metrics_window(engine, load, 12, OPTIONS, clock)
    # Counting whole steps over an unaligned 3 s would be off by up to 8 %.
    assert window.rate_tok_s == pytest.approx(4.0, rel=0.015)
    assert window.counts.generation_tok == 12


def test_window_is_as_much_work_as_asked():
    clock = LoopClock()
    engine = LoopEngine(clock)
    engine.pin(2)
    with open_loop(engine, "m", REQUESTS, 4) as load:
        reader = StepReader(engine)
        for work_tok in (50, 200, 1000):
            begin_s = clock.now_s()
            rate = step_window(run_of(engine), reader, load, work_tok, OPTIONS, clock).rate_tok_s
            assert clock.now_s() - begin_s == pytest.approx(work_tok / rate, abs=0.3)
    assert OPTIONS.work_tok(8, 96.0) == 768
    assert OPTIONS.work_tok(1, 96.0) == 256


def test_lost_steps_start_the_window_again():
    clock = LoopClock()
    engine = LoopEngine(clock)
    engine.pin(2)
    with open_loop(engine, "m", REQUESTS, 8) as load:
        clock.sleep_s(1.0)
        reader = StepReader(engine)
        engine.lose_at = reader.next_seq + 20
        window = step_window(run_of(engine), reader, load, 2000, OPTIONS, clock)
    assert engine.lose_at == 0
    assert window.rate_tok_s == pytest.approx(expected_rate(8, 2), rel=0.08)


def test_rare_lengths_are_not_told():
    clock = LoopClock()
    engine = LoopEngine(clock)
    engine.swap_table([[1, 7, 4], [8, 64, 2]])
    run = run_of(engine, lookup=(0, *(4,) * 7, *(2,) * 57))
    with open_loop(engine, "m", REQUESTS, 8) as load:
        window = step_window(run, StepReader(engine), load, 4000, OPTIONS, clock)
    assert window.lengths == {2}


def test_engine_that_does_not_follow_is_named():
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(ignores_length=3))
    with open_loop(engine, "m", REQUESTS, 4) as load, pytest.raises(LengthNotFollowedError) as e:
        step_window(run_of(engine, 1), StepReader(engine), load, WORK_TOK, OPTIONS, clock)
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
            window(WORK_TOK, OPTIONS, clock)


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
    stream = staggered([LoadRequest("a", 64), LoadRequest("b", 64)], 8, 1, 20)
    assert [r.max_tokens for r in stream[:10]] == [8, 16, 24, 32, 40, 48, 56, 64, 64, 64]
    assert [r.prompt for r in stream[:4]] == ["b", "a", "b", "a"]
    assert len(stream) == 20


def replayed(clock, engine, policies, work_tok=300):
    rates = []
    for length in policies:
        engine.pin(length)
        with open_loop(engine, "m", REQUESTS, 1) as load:
            ramp_up(run_of(engine, length), load, 1, OPTIONS, clock)
            reader = StepReader(engine)
            rates.append(
                step_window(
                    run_of(engine, length), reader, load, work_tok, OPTIONS, clock
                ).rate_tok_s
            )
    return rates


def test_replayed_work_has_the_same_luck():
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(SURVIVAL, predictable=0.5))
    first, other, again = replayed(clock, engine, [3, 1, 3])
    assert again == pytest.approx(first, rel=0.02)
    assert first > 1.1 * other
