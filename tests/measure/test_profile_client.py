"""The client method: step times from requests and counters, and how it says that it cannot."""

import numpy as np
import pytest
from closed_loop_engine import Behaviour, LoopClock, LoopEngine, default_step_time_s, open_loop

from tabletune.measure.api import EngineApiError
from tabletune.measure.load import LoadRequest
from tabletune.measure.metrics import Counters, MetricsError
from tabletune.measure.profile_client import ClientProfileError, ClientProfiler, decode_steps
from tabletune.measure.profile_in_engine import CellSamples

REQUESTS = [LoadRequest(f"{i}" * 200, 7) for i in range(4)]


def profiler(engine, set_length=None, **fields):
    return ClientProfiler(
        engine,
        "m",
        REQUESTS,
        50.0,
        set_length or engine.pin,
        clock=engine.clock,
        open_load=open_loop,
        **fields,
    )


def test_exact_where_every_step_is_alike():
    engine = LoopEngine(LoopClock(), Behaviour((1.0, 1.0), prefill_s_per_tok=0.001))
    cells = profiler(engine).measure(8, [0, 2])
    # All drafts are accepted: 64 tokens take 22 steps, the last of them cut short; the first
    # decode step verifies the drafts made after the prompt's step.
    assert cells[0].samples_s == pytest.approx([default_step_time_s(8, 0)] * 3)
    assert cells[2].samples_s == pytest.approx([default_step_time_s(8, 2)] * 3)
    assert cells[0].scheduled_tok == [8, 8, 8]
    assert cells[2].scheduled_tok == [24, 24, 24]
    assert cells[2].context_tok == [82.5] * 3
    assert [c for c in engine.calls if c[0] == "pin"] == [
        ("pin", 0),
        ("pin", 2),
        ("pin", None),
    ]


def test_close_where_acceptance_varies_and_named_bias_shows():
    engine = LoopEngine(LoopClock(), Behaviour((0.8, 0.6, 0.4, 0.25), noise=0.02))
    samples = profiler(engine).measure(1, [3])[3].samples_s
    assert samples == pytest.approx([default_step_time_s(1, 3)] * 3, rel=0.05)
    thinning = sorted(profiler(engine).measure(16, [3])[3].samples_s)[1]
    assert 1.0 < thinning / default_step_time_s(16, 3) < 1.2


def test_steps_without_a_proposal_count_too():
    # n-gram: drafts in half of the steps; their number alone would double the step time.
    engine = LoopEngine(LoopClock(), Behaviour((0.7, 0.6, 0.5), proposal=0.5))
    cell = profiler(engine).measure(1, [3])[3]
    drafting = [(tok - 1) / 3 for tok in cell.scheduled_tok]
    assert sum(drafting) / len(drafting) == pytest.approx(0.5, abs=0.12)
    expected_s = [default_step_time_s(1, 3 * share) for share in drafting]
    assert cell.samples_s == pytest.approx(expected_s, rel=0.06)


@pytest.mark.parametrize("proposal", [0.3, 0.7])
def test_expected_steps_have_no_bias_where_some_lack_a_proposal(proposal):
    rng = np.random.default_rng(3)
    survival = np.array([0.8, 0.7, 0.6, 0.5])
    true = np.zeros(4000)
    positions = np.zeros(4)
    drafts = 0
    for request in range(len(true)):
        left = 64
        while left > 0:
            true[request] += 1
            drafting = rng.random() < proposal
            hits = int(np.count_nonzero(rng.random() < survival)) if drafting else 0
            drafts += drafting
            positions[:hits] += 1
            left -= 1 + hits
    accepted = positions.sum()
    counts = Counters(65 * len(true), drafts, 4 * drafts, accepted, tuple(positions), 0, True)
    by_tokens = 64 - accepted / len(true)
    assert by_tokens < 0.985 * true.mean()
    assert decode_steps(counts, len(true)) == pytest.approx(true.mean(), rel=0.002)


def test_samples_are_added_to_kept_ones():
    engine = LoopEngine(LoopClock())
    kept = CellSamples([0.5], [1.0], [1.0])
    assert len(profiler(engine).measure(1, [0], {0: kept})[0].samples_s) == 4


def test_engine_without_speculation_has_no_counters_of_drafts():
    engine = LoopEngine(LoopClock(), Behaviour(speculative=False))
    samples = profiler(engine).measure(4, [0])[0].samples_s
    assert samples == pytest.approx([default_step_time_s(4, 0)] * 3)


def test_failed_requests_and_foreign_load_are_refused():
    engine = LoopEngine(LoopClock(), Behaviour(fails="HTTP 400: no"))
    with pytest.raises(ClientProfileError, match=r"0 of 2 requests done, last error: 'HTTP 400"):
        profiler(engine).measure(2, [0])
    slow = LoopEngine(LoopClock())
    with pytest.raises(ClientProfileError, match="0 of 2 requests done"):
        profiler(slow, timeout_s=0.01).measure(2, [0])
    shared = LoopEngine(LoopClock())
    page = shared.metrics_text
    reads = iter(range(1000))
    shared.metrics_text = lambda: page().replace(
        'vllm:generation_tokens_total{engine="0",model_name="m"} ',
        f'vllm:generation_tokens_total{{engine="1"}} {next(reads)}\n'
        'vllm:generation_tokens_total{engine="0",model_name="m"} ',
    )
    with pytest.raises(ClientProfileError, match="3 tokens for 2 times 1"):
        profiler(shared).measure(2, [0])


@pytest.mark.parametrize(
    ("generated", "drafts", "accepted", "steps"),
    [
        (65 * 4, 0, 0, 64),  # no drafts
        (65 * 4, 4 * 30, 4 * 36, 30),  # every step drafts, two guesses beyond the end
        # n-gram, drafts in some steps only: 64 - 12, and 4·(12 + 2·0)/256 for what was cut.
        (65 * 4, 4 * 10, 4 * 12, 52 + 48 / 256),
        (4, 0, 0, 0),
    ],
)
def test_steps_from_counters(generated, drafts, accepted, steps):
    counts = Counters(generated, drafts, 0, accepted, (accepted, 0), 0, True)
    assert decode_steps(counts, 4) == steps


def test_a_dead_engine_is_told_by_the_first_error():
    engine = LoopEngine(LoopClock())
    page = engine.metrics_text
    reads = iter(range(1000))

    def gone(*_):
        raise EngineApiError("GET /metrics", "ConnectError", "see its log")

    def metrics_text():
        return page() if next(reads) < 5 else gone()

    engine.metrics_text = metrics_text
    pinned = []
    client = profiler(engine, set_length=lambda k: gone() if pinned else pinned.append(k))
    with pytest.raises(EngineApiError, match=r"GET /metrics: ConnectError; see its log"):
        client.measure(2, [1])


def test_missing_counters_are_named():
    engine = LoopEngine(LoopClock())
    page = engine.metrics_text
    engine.metrics_text = lambda: page().replace("num_accepted_tokens_total", "other_total")
    with pytest.raises(MetricsError, match="spec_decode_num_accepted_tokens_total"):
        profiler(engine).measure(2, [1])
    assert engine.calls[-1] == ("pin", None)


def test_an_engine_that_dies_in_a_call_is_refused():
    engine = LoopEngine(LoopClock(), Behaviour(stops_after_s=0.5))
    with pytest.raises(ClientProfileError, match="connection refused"):
        profiler(engine).measure(2, [0])
