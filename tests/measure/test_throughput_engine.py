"""Acceptance, validation and the client profile on a real engine: vLLM on the CPU, n-gram."""

import time

import numpy as np
import pytest

from tabletune.measure.acceptance import measure_acceptance
from tabletune.measure.clock import SystemClock
from tabletune.measure.driven import open_closed_loop
from tabletune.measure.metrics import parse_counters
from tabletune.measure.profile_client import ClientProfiler
from tabletune.measure.progress import Silent
from tabletune.measure.prompts import load_prompts
from tabletune.measure.render import Renderer
from tabletune.measure.rounds import Bench
from tabletune.measure.validate import (
    conclude,
    measure_elsewhere,
    measure_on_plugin_engine,
)
from tabletune.measure.validation_setup import Setup, Subject, by_metrics_runs
from tabletune.measure.windows import WindowOptions
from tabletune.records.vllm_format import from_vllm
from tests.engines import BOOT_TABLE, LONGEST, MAX_NUM_SEQS, SharedEngine

pytestmark = pytest.mark.engine


@pytest.fixture
def served(measuring_engine: SharedEngine) -> SharedEngine:
    return measuring_engine


def renderer(served: SharedEngine, max_tokens: int) -> Renderer:
    return Renderer(served.api, served.model, max_tokens, Silent(), max_prompt_tok=200)


def test_acceptance(served: SharedEngine):
    prompts = load_prompts().sample(24)
    before = parse_counters(served.api.metrics_text())
    prior = measure_acceptance(
        served.api,
        served.model,
        prompts,
        LONGEST,
        MAX_NUM_SEQS,
        render=renderer(served, 48),
        fingerprint="f" * 64,
        progress=Silent(),
        clock=SystemClock(),
    )
    counts = parse_counters(served.api.metrics_text()) - before
    print(prior.counts, prior.by_group, prior.wall_time_s, counts)
    assert prior.prompt_count == 24
    assert set(prior.by_group) == {"code", "chat", "summarising", "extraction"}
    assert 0 < prior.counts.accepted_through[0] < prior.counts.drafted_through[0]
    assert prior.counts.drafted_through[0] < prior.counts.request_steps
    # Steps whose drafts' length is not known for certain are left out, few as they are.
    assert 0.8 * counts.drafts <= prior.counts.drafted_through[0] <= counts.drafts
    assert sum(prior.counts.accepted_through) <= counts.accepted_tok


def test_validation(served: SharedEngine):
    table = from_vllm(BOOT_TABLE, MAX_NUM_SEQS, LONGEST).table
    setup = Setup(table, "c" * 64, "f" * 64, (1, 8), rounds=2, more_rounds=0, metrics_rounds=1)
    bench = Bench(
        tuple(renderer(served, 48)(load_prompts().sample(16).prompts)),
        WindowOptions(requests_per_slot=0.5, min_tok=48),
        SystemClock(),
        np.random.default_rng(0),
        Silent(),
        open_closed_loop,
    )
    subject = Subject(served.api, served.model, (0, 4), always_proposes=False)
    outcome = measure_on_plugin_engine(setup, bench, subject)
    measure_elsewhere(setup, bench, by_metrics_runs(setup, subject), outcome, subject)
    verdict = conclude(setup, bench, outcome)
    for measured in verdict.measured:
        rates = np.array(measured.windows_tok_s)
        print(measured.concurrency, measured.policy, rates.mean().round(1), rates.round(1))
    print(*verdict.ratios, *verdict.reasons, f"{verdict.wall_time_s:.0f} s", sep="\n")
    means = {(m.policy, m.concurrency): np.mean(m.windows_tok_s) for m in verdict.measured}
    assert all(rate > 0 for rate in means.values())
    assert means["candidate", 8] > means["candidate", 1]
    for concurrency in (1, 8):  # both instruments see the same engine
        ratio = means["candidate_by_metrics", concurrency] / means["candidate", concurrency]
        assert 0.6 < ratio < 1.6
    assert served.api.status()["table"] == BOOT_TABLE


def test_client_profile(served: SharedEngine):
    profiler = ClientProfiler(
        served.api,
        served.model,
        renderer(served, 8)(load_prompts().sample(4).prompts),
        150.0,
        served.api.pin,
        clock=SystemClock(),
    )
    begin_s = time.monotonic()
    cells = profiler.measure(2, [0, 4])
    print({k: c.samples_s for k, c in cells.items()}, f"{time.monotonic() - begin_s:.1f} s")
    assert all(0.001 < s < 2.0 for cell in cells.values() for s in cell.samples_s)
    assert cells[0].scheduled_tok == [2, 2, 2]
