from functools import partial

import pytest
from closed_loop_engine import Behaviour, LoopClock, LoopEngine, default_step_time_s, open_loop

from tabletune.measure.load import LoadRequest
from tabletune.measure.metrics import parse_counters
from tabletune.measure.rounds import staggered
from tabletune.measure.steps import StepReader
from tabletune.measure.windows import (
    LengthNotFollowedError,
    LoadEndedError,
    PolicyRun,
    WindowOptions,
    Work,
    metrics_window,
    step_window,
    wait_until_idle,
)

SURVIVAL = (0.8, 0.6, 0.4, 0.25)
REQUESTS = staggered([LoadRequest(f"{i}" * 400, 100) for i in range(8)], 8, 0, 1000)
OPTIONS = WindowOptions()
WORK = Work(64, 2000)


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
    reader = StepReader(engine)
    with open_loop(engine, "m", REQUESTS, 8) as load:
        by_steps = step_window(run, reader, load, WORK, OPTIONS, clock)
    start = wait_until_idle(engine, clock)
    with open_loop(engine, "m", REQUESTS, 8) as load:
        by_metrics = metrics_window(engine, start, load, WORK, OPTIONS, clock)
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
        start = parse_counters(engine.metrics_text())
        window = metrics_window(engine, start, load, Work(1, 12), OPTIONS, clock)
    # Counting whole steps over an unaligned 3 s would be off by up to 8 %.
    assert window.rate_tok_s == pytest.approx(4.0, rel=0.015)
    assert window.counts.generation_tok == 12


def test_a_metrics_window_lasts_long_enough_for_its_looks():
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(SURVIVAL, step_time_s=lambda b, k: 0.001))
    engine.pin(0)
    with open_loop(engine, "m", REQUESTS, 1) as load:
        start, begun_s = parse_counters(engine.metrics_text()), clock.now_s()
        window = metrics_window(engine, start, load, Work(1, 12), OPTIONS, clock)
    assert window.rate_tok_s == pytest.approx(1000, rel=0.02)
    assert OPTIONS.shortest_s <= clock.now_s() - begun_s < 2 * OPTIONS.shortest_s


def stalled_rate(stall_at_s, engine_of=LoopEngine, stall_s=3.0):
    clock = LoopClock()
    engine = engine_of(clock, Behaviour(SURVIVAL, stall_at_s=stall_at_s, stall_s=stall_s))
    engine.pin(2)
    start = wait_until_idle(engine, clock)
    with open_loop(engine, "m", REQUESTS, 8) as load:
        return metrics_window(engine, start, load, Work(32, 800), OPTIONS, clock).rate_tok_s


@pytest.mark.parametrize("begin_ms", range(0, 1600, 100))
def test_a_server_that_stalls_shifts_no_end(begin_ms):
    # Around the window's begin, within it, and around its end, at about 1.3 s.
    for stall_ms in range(begin_ms, begin_ms + 100, 5):
        assert stalled_rate(stall_ms / 1e3) == pytest.approx(expected_rate(8, 2), rel=0.06)


class Hiccups(LoopEngine):
    """Every third metrics page takes a while."""

    pages = 0

    def metrics_text(self):
        self.pages += 1
        if self.pages % 3 == 0:
            self.clock.sleep_s(0.12)
        return super().metrics_text()


def test_a_server_that_is_slow_now_and_then_still_shows_a_stall():
    rates = [stalled_rate(0.9 + 0.01 * i, Hiccups) for i in range(110)]
    assert rates == pytest.approx([expected_rate(8, 2)] * 110, rel=0.1)


def test_a_server_that_is_always_slow_is_measured_all_the_same():
    clock = LoopClock()
    engine = SlowPages(clock, Behaviour(SURVIVAL))
    engine.pin(2)
    start = wait_until_idle(engine, clock)
    with open_loop(engine, "m", REQUESTS, 8) as load:
        window = metrics_window(engine, start, load, Work(64, 4000), OPTIONS, clock)
    assert window.rate_tok_s == pytest.approx(expected_rate(8, 2), rel=0.06)
    assert window.counts.generation_tok < 3 * 4000


class SlowPages(LoopEngine):
    """Answers for a metrics page only after a while."""

    def metrics_text(self):
        self.clock.sleep_s(0.4)
        return super().metrics_text()


def test_window_is_the_work_asked_for():
    clock = LoopClock()
    engine = LoopEngine(clock)
    engine.pin(2)
    for work in (Work(32, 50), Work(32, 1000), Work(1000, 50)):
        reader, begin_s = StepReader(engine), clock.now_s()
        with open_loop(engine, "m", REQUESTS, 4) as load:
            rate = step_window(run_of(engine), reader, load, work, OPTIONS, clock).rate_tok_s
        expected_s = (work.skip_tok + work.work_tok) / rate
        assert clock.now_s() - begin_s == pytest.approx(expected_s, abs=0.35)
    assert OPTIONS.work(8, 96.0) == Work(64, 768)
    assert OPTIONS.work(1, 96.0) == Work(8, 256)
    less, more = WindowOptions(metrics_share=0.5), WindowOptions(metrics_share=4.0)
    assert less.work(1, 96.0, by_metrics=True) == Work(8, 128)
    assert less.work(8, 96.0, by_metrics=True) == Work(64, 384)
    assert more.work(1, 96.0, by_metrics=True) == Work(8, 384), "the work, not the least of it"
    assert more.work(8, 96.0, by_metrics=True) == Work(64, 4 * 768)


def test_lost_steps_start_the_window_again():
    clock = LoopClock()
    engine = LoopEngine(clock)
    engine.pin(2)
    with open_loop(engine, "m", REQUESTS, 8) as load:
        clock.sleep_s(1.0)
        reader = StepReader(engine)
        engine.lose_at = reader.next_seq + 20
        window = step_window(run_of(engine), reader, load, WORK, OPTIONS, clock)
    assert engine.lose_at == 0
    assert window.rate_tok_s == pytest.approx(expected_rate(8, 2), rel=0.08)


def test_rare_lengths_are_not_told():
    clock = LoopClock()
    engine = LoopEngine(clock)
    engine.swap_table([[1, 7, 4], [8, 64, 2]])
    run = run_of(engine, lookup=(0, *(4,) * 7, *(2,) * 57))
    reader = StepReader(engine)
    with open_loop(engine, "m", REQUESTS, 8) as load:
        window = step_window(run, reader, load, Work(64, 4000), OPTIONS, clock)
    assert window.lengths == {2}


def test_engine_that_does_not_follow_is_named():
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(ignores_length=3))
    with open_loop(engine, "m", REQUESTS, 4) as load, pytest.raises(LengthNotFollowedError) as e:
        step_window(run_of(engine, 1), StepReader(engine), load, WORK, OPTIONS, clock)
    assert (e.value.batch_size, e.value.expected, e.value.found) == (4, 1, 3)


@pytest.mark.parametrize("by_metrics", [False, True])
def test_load_that_ends_is_told_with_its_error(by_metrics):
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(stops_after_s=1.0))
    with open_loop(engine, "m", REQUESTS, 4) as load:
        clock.sleep_s(1.0)
        run, reader = run_of(engine), StepReader(engine)
        start = parse_counters(engine.metrics_text())
        window = (
            partial(metrics_window, engine, start, load)
            if by_metrics
            else partial(step_window, run, reader, load)
        )
        with pytest.raises(LoadEndedError, match="connection refused"):
            window(WORK, OPTIONS, clock)


def test_waiting_until_idle_has_an_end():
    clock = LoopClock()
    engine = LoopEngine(clock)
    assert wait_until_idle(engine, clock).generation_tok == 0
    with open_loop(engine, "m", REQUESTS, 4):
        begin_s = clock.now_s()
        assert wait_until_idle(engine, clock, timeout_s=2.0).running == 4
        assert clock.now_s() - begin_s == pytest.approx(2.0, abs=0.1)


def test_stream_spreads_the_ends_of_its_first_requests():
    stream = staggered([LoadRequest("a", 64), LoadRequest("b", 64)], 8, 1, 20)
    assert [r.max_tokens for r in stream[:10]] == [8, 16, 24, 32, 40, 48, 56, 64, 64, 64]
    assert [r.prompt for r in stream[:4]] == ["b", "a", "b", "a"]
    assert len(stream) == 20


def replayed(clock, engine, policies):
    rates = []
    for length in policies:
        engine.pin(length)
        reader, run = StepReader(engine), run_of(engine, length)
        with open_loop(engine, "m", REQUESTS, 1) as load:
            rates.append(step_window(run, reader, load, Work(8, 300), OPTIONS, clock).rate_tok_s)
    return rates


def test_replayed_work_has_the_same_luck():
    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(SURVIVAL, predictable=0.5))
    first, other, again = replayed(clock, engine, [3, 1, 3])
    assert again == pytest.approx(first, rel=1e-6)
    assert first > 1.1 * other
