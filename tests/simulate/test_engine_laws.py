"""Laws that hold whatever is simulated: conservation, repeatability, goodput, Little's law."""

from dataclasses import replace

import numpy as np
import pytest

from tabletune.core.goodput import expected_tokens
from tabletune.core.survival import proposal_rate, survival
from tabletune.core.table import build_table
from tabletune.simulate.acceptance import AcceptanceModel
from tabletune.simulate.lengths import LognormalLength
from tabletune.simulate.loads import ClosedLoop, Load, OpenLoop, Trace
from tabletune.simulate.policy import FixedPolicy, Policy, TablePolicy
from tabletune.simulate.result import SimulationResult
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import Noise, StepCost, step_times
from tabletune.simulate.workload import Traffic, Workload
from tests.simulate.scenes import (
    SURVIVAL,
    Sequenced,
    constant_times,
    engine,
    h200_surface,
    plain_times,
)

TOKENS = expected_tokens(SURVIVAL)
NGRAM = AcceptanceModel((0.8, 0.6, 0.5, 0.4), spread=0.8, proposal_rate=(0.4, 0.3, 0.3, 0.2))
SPREAD = AcceptanceModel(SURVIVAL, spread=1.0)
LOADS: dict[str, Load] = {
    "closed": ClosedLoop(20),
    "closed, thinking": ClosedLoop(20, think_s=0.05, exponential_think=True, ramp_s=0.3),
    "poisson": OpenLoop(12.0),
    "bursty": OpenLoop(2.0, burst_per_s=40.0, on_s=0.5, off_s=1.0),
    "trace": Trace([0.0, 0.1, 0.1, 0.7, 3.0], [300, 5, 5, 1, 9], [80, 1, 2, 500, 60]),
}
NOISE = Noise(0.05, outlier_rate=0.01)
TABLE = TablePolicy.from_rows([(1, 6, 4), (7, 12, 2), (13, 64, 0)])


def _engine(
    load: Load,
    model: AcceptanceModel,
    settings: EngineSettings,
    policy: Policy = TABLE,
    noise: Noise = NOISE,
):
    traffic = (Traffic(LognormalLength(60, 0.7), LognormalLength(100, 0.8, high=900)),)
    cost = StepCost(
        plain_times(),
        prefill_s_per_tok=2e-5,
        prefill_step_s=1e-3,
        context_s_per_tok=1e-7,
        profiled_context_tok=100,
        noise=noise,
        by_drafted=model.proposal_rate is not None,
    )
    workload = Workload(load, traffic)
    return engine(workload=workload, policy=policy, cost=cost, models=[model], settings=settings)


def _same(one: SimulationResult, other: SimulationResult) -> None:
    for log, twin in ((one.steps, other.steps), (one.requests, other.requests)):
        for name, column in vars(log).items():
            np.testing.assert_array_equal(column, getattr(twin, name), err_msg=name)


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS.keys())
@pytest.mark.parametrize("model", [SPREAD, NGRAM], ids=["full drafts", "n-gram"])
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("capacity", [None, 3000])
def test_tokens_are_conserved_and_blocks_change_nothing(
    load: Load, model: AcceptanceModel, asynchronous: bool, capacity: int | None
) -> None:
    settings = EngineSettings(
        max_num_seqs=24,
        max_num_batched_tokens=256,
        async_scheduling=asynchronous,
        kv_capacity_tok=capacity,
    )
    result = _engine(load, model, settings).run(6.0)
    requests, steps = result.requests, result.steps
    assert steps.tokens.sum() == requests.given_tok.sum()
    assert (requests.given_tok[requests.finished] == requests.output_tok[requests.finished]).all()
    assert (requests.given_tok <= requests.output_tok).all()
    assert (steps.tokens >= 0).all()
    assert (steps.batch_size <= 24).all()
    assert (steps.start_s[1:] >= steps.end_s[:-1]).all()
    done = requests.finished
    assert (requests.arrival_s[done] <= requests.scheduled_s[done]).all()
    assert (requests.scheduled_s[done] < requests.first_token_s[done]).all()
    assert (requests.first_token_s[done] <= requests.finish_s[done]).all()
    single = _engine(load, model, replace(settings, block_steps=False)).run(6.0)
    _same(result, single)


def test_blocks_change_nothing_on_a_host_that_drifts() -> None:
    settings, noise = EngineSettings(max_num_seqs=24), Noise(0.03, host_sd=0.1, host_share=(1, 0.4))
    runs = [
        _engine(LOADS["closed"], SPREAD, replace(settings, block_steps=blocks), noise=noise)
        for blocks in (True, False)
    ]
    _same(runs[0].run(20.0), runs[1].run(20.0))


def test_a_finished_trace_gave_exactly_what_was_asked() -> None:
    trace = LOADS["trace"]
    assert isinstance(trace, Trace)
    result = _engine(trace, SPREAD, EngineSettings(max_num_seqs=24)).run(30.0)
    assert result.steps.tokens.sum() == sum(trace.output_tokens)
    assert result.steps.prefill_tok.sum() == sum(trace.prompt_tokens)


def test_a_seed_repeats_and_another_does_not() -> None:
    runs = [engine(OpenLoop(10.0), output=100, seed=seed).run(5.0) for seed in (3, 3, 4)]
    _same(runs[0], runs[1])
    assert runs[0].steps.tokens.sum() != runs[2].steps.tokens.sum()


def test_policies_meet_the_same_requests() -> None:
    settings = EngineSettings(max_num_seqs=24)
    logs = [
        _engine(LOADS["poisson"], SPREAD, settings, FixedPolicy(k)).run(5.0).requests
        for k in (0, 4)
    ]
    for name in ("arrival_s", "prompt_tok", "output_tok"):
        np.testing.assert_array_equal(getattr(logs[0], name), getattr(logs[1], name))


class _Watching(Sequenced):
    """Steady for ever, so that it is shown blocks; also in steps one by one."""

    def steady_steps(self, observation: object) -> int:
        return 1 << 60


@pytest.mark.parametrize("model", [SPREAD, NGRAM], ids=["full drafts", "n-gram"])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_blocks_are_shown_as_their_steps_would_be(
    model: AcceptanceModel, asynchronous: bool
) -> None:
    sums: list[dict[str, object]] = []
    counts: list[int] = []
    for blocks in (True, False):
        policy = _Watching([3])
        settings = EngineSettings(
            max_num_seqs=24, async_scheduling=asynchronous, block_steps=blocks
        )
        _engine(ClosedLoop(3), model, settings, policy).run(4.0)
        seen = policy.shown
        counts.append(len(seen))
        sums.append(
            {
                "steps": policy.shown_steps,
                "tokens": np.concatenate([s.tokens for s in seen]).tolist(),
                "times": np.concatenate([s.step_time_s for s in seen]).tolist(),
                "decodes": sum(s.decode_requests * s.count for s in seen),
                "drafted": sum(s.survival_counts(4).drafted_through.tolist()[2] for s in seen),
                "accepted": sum(s.survival_counts(4).accepted_through.tolist()[0] for s in seen),
            }
        )
    assert sums[0] == sums[1]
    assert counts[0] < 0.7 * counts[1]


def test_the_counts_shown_tell_the_survival_and_the_proposal_rate() -> None:
    model = AcceptanceModel((0.8, 0.6, 0.5, 0.4), proposal_rate=(0.4, 0.3, 0.3, 0.2))
    policy = Sequenced([4, 2, 3, 4])
    simulated = engine(
        ClosedLoop(32), policy, output=10_000, models=[model], cost=StepCost(constant_times())
    )
    simulated.run(30.0)
    counts = policy.shown[0].survival_counts(4)
    for steps in policy.shown[1:]:
        counts = counts + steps.survival_counts(4)
    assert survival(counts) == pytest.approx(model.survival, abs=0.01)
    assert proposal_rate(counts) == pytest.approx(model.proposal_rate, abs=0.01)


def test_steady_decoding_runs_at_the_predicted_goodput() -> None:
    surface = h200_surface()
    cost = StepCost(step_times(surface, 128), noise=Noise(0.03))
    settings = EngineSettings(max_num_seqs=128)
    for clients in (4, 32, 128):
        for k in surface.draft_lengths:
            result = engine(
                ClosedLoop(clients), FixedPolicy(k), output=10**6, cost=cost, settings=settings
            ).run(12.0)
            predicted = clients * TOKENS[k] / surface.step_time_s(clients, k)
            assert result.throughput_tok_s(2.0) == pytest.approx(predicted, rel=0.015)


def test_a_spread_over_requests_costs_what_the_harmonic_mean_says() -> None:
    model = AcceptanceModel(SURVIVAL, spread=1.5)
    settings = EngineSettings(max_num_seqs=64, async_scheduling=False)
    result = engine(
        ClosedLoop(64),
        FixedPolicy(3),
        prompt=1,
        output=600,
        models=[model],
        cost=StepCost(constant_times()),
        settings=settings,
    ).run(120.0)
    steps = result.steps
    first_tokens = np.isfinite(result.requests.first_token_s).sum()
    per_step = (steps.tokens.sum() - first_tokens) / steps.decode_requests.sum()
    assert per_step == pytest.approx(model.expected_tokens_per_step()[3], rel=0.015)
    assert model.expected_tokens_per_step()[3] < 0.93 * model.expected_tokens()[3]


def test_littles_law() -> None:
    """Requests in the system over time = arrival rate × time in the system."""
    settings = EngineSettings(max_num_seqs=24, async_scheduling=False)
    result = _engine(OpenLoop(14.0), SPREAD, settings, FixedPolicy(2)).run(200.0)
    steps, log = result.steps, result.requests
    present = (steps.batch_size + steps.waiting_requests) @ steps.step_time_s / result.end_s
    stayed = np.where(log.finished, log.finish_s, result.end_s) - log.arrival_s
    assert steps.waiting_requests.max() > 0
    # The step log does not see the wait for the step that runs when a request arrives.
    unseen = log.arrival_s.size * np.mean(steps.step_time_s) / 2 / result.end_s
    assert present + unseen == pytest.approx(stayed.sum() / result.end_s, rel=0.02)


def test_the_tuned_table_gains_what_the_core_predicts() -> None:
    surface = h200_surface()
    times = step_times(surface, 128)
    table = build_table(surface, TOKENS, 128)
    cost = StepCost(times, noise=Noise(0.03))
    settings = EngineSettings(max_num_seqs=128)

    def measured(policy: Policy, clients: int) -> float:
        simulated = engine(ClosedLoop(clients), policy, output=10**6, cost=cost, settings=settings)
        return simulated.run(10.0).throughput_tok_s(2.0)

    for clients in (2, 12, 64, 100, 128):
        chosen = table.draft_lengths[clients - 1]
        tuned = measured(TablePolicy(table.draft_lengths), clients)
        for k in surface.draft_lengths:
            predicted = TOKENS[chosen] / times[clients, chosen] * times[clients, k] / TOKENS[k]
            ratio = tuned / measured(FixedPolicy(k), clients)
            assert ratio == pytest.approx(predicted, rel=0.02)
            assert ratio > 0.98


def test_mean_times_are_the_profile_whatever_the_noise() -> None:
    cost = StepCost(constant_times(), noise=Noise(0.3, outlier_rate=0.02, outlier_factor=4.0))
    steps = engine(ClosedLoop(4), output=10**6, cost=cost).run(100.0).steps
    assert steps.step_time_s.mean() == pytest.approx(0.010 * (1 + 0.02 * 3), rel=0.02)
