"""What the simulated engine schedules and when, worked out by hand."""

import numpy as np
import pytest

from tabletune.simulate.acceptance import AcceptanceModel
from tabletune.simulate.errors import SimulationError
from tabletune.simulate.lengths import FixedLength
from tabletune.simulate.loads import ClosedLoop, OpenLoop, Trace
from tabletune.simulate.policy import FixedPolicy, TablePolicy
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import StepCost
from tabletune.simulate.workload import Traffic, Workload
from tests.simulate.scenes import SURVIVAL, Sequenced, constant_times, engine

ALL = [AcceptanceModel([1.0] * 4)]
NONE = [AcceptanceModel([0.0] * 4)]
ASYNC = EngineSettings(max_num_seqs=8)
SYNC = EngineSettings(max_num_seqs=8, async_scheduling=False)
TEN_MS = StepCost(constant_times(8))


def _traced(arrivals: list[float], prompts: list[int], outputs: list[int]) -> Workload:
    traffic = (Traffic(FixedLength(1), FixedLength(1)),)
    return Workload(Trace(arrivals, prompts, outputs), traffic)


@pytest.mark.parametrize("settings", [ASYNC, SYNC])
def test_the_length_drafted_in_a_step_is_verified_in_the_next(settings: EngineSettings) -> None:
    policy = Sequenced([3, 1, 0, 2, 4])
    steps = (
        engine(ClosedLoop(3), policy, output=40, models=ALL, cost=TEN_MS, settings=settings)
        .run(3.0)
        .steps
    )
    expected = np.array([policy.lengths[i % 5] for i in range(len(steps.tokens))])
    assert steps.draft_length.tolist() == expected.tolist()
    assert steps.verified_length[1:].tolist() == expected[:-1].tolist()
    # Everything is accepted: in the middle of the requests the tokens show what was verified.
    plain = (steps.prefill_tok[:10] == 0) & (steps.decode_requests[:10] == 3)
    assert plain.sum() >= 8
    assert (
        steps.tokens[:10][plain].tolist() == (3 * (1 + steps.verified_length[:10]))[plain].tolist()
    )


@pytest.mark.parametrize(("settings", "late"), [(ASYNC, 1), (SYNC, 0)])
def test_the_policy_sees_a_step_one_choice_later_with_asynchronous_scheduling(
    settings: EngineSettings, late: int
) -> None:
    policy = Sequenced([2])
    engine(ClosedLoop(2), policy, output=400, settings=settings, cost=TEN_MS).run(1.0)
    assert len(policy.asked) == 100
    for step, _, shown in policy.asked:
        assert shown == max(0, step - late)


@pytest.mark.parametrize(("settings", "cycle"), [(ASYNC, [1, 3, 0]), (SYNC, [1, 3])])
def test_a_request_that_ends_by_luck_is_scheduled_once_more(
    settings: EngineSettings, cycle: list[int]
) -> None:
    """Prompt and first token; three tokens with two accepted guesses; with asynchronous
    scheduling one step for nothing before the client's next request."""
    result = engine(
        ClosedLoop(1), FixedPolicy(2), output=4, models=ALL, cost=TEN_MS, settings=settings
    ).run(0.6)
    assert result.steps.tokens.tolist() == (cycle * 30)[:60]


def test_a_request_sure_to_end_is_not_scheduled_again() -> None:
    result = engine(
        ClosedLoop(1), FixedPolicy(2), output=3, models=NONE, cost=TEN_MS, settings=ASYNC
    ).run(0.3)
    assert result.steps.tokens.tolist() == [1, 1, 1] * 10
    assert result.steps.decode_requests.tolist() == [0, 1, 1] * 10


@pytest.mark.parametrize(("settings", "joins"), [(ASYNC, 7), (SYNC, 6)])
def test_when_an_arrival_joins(settings: EngineSettings, joins: int) -> None:
    """It arrives during step 5. Step 6 is then already scheduled if that is asynchronous."""
    workload = _traced([0.0, 0.055], [4, 4], [100, 100])
    steps = engine(workload=workload, cost=TEN_MS, settings=settings).run(0.2).steps
    assert np.flatnonzero(steps.prefill_tok).tolist() == [0, joins]


def test_the_length_follows_the_batch_with_its_prefills() -> None:
    workload = _traced([0.0] * 4 + [0.1], [4] * 5, [100] * 5)
    table = TablePolicy.from_rows([(1, 4, 3), (5, 8, 1)])
    steps = engine(workload=workload, policy=table, models=NONE, settings=SYNC, cost=TEN_MS)
    log = steps.run(0.3).steps
    (joined,) = np.flatnonzero(log.prefill_tok)[1:]
    assert log.decode_requests[joined] == 4
    assert log.batch_size[joined] == 5
    assert log.draft_length[joined - 1 : joined + 1].tolist() == [3, 1]


def test_prompts_are_cut_to_what_the_step_has_left() -> None:
    settings = EngineSettings(max_num_seqs=8, max_num_batched_tokens=64, async_scheduling=False)
    workload = _traced([0.0, 0.0], [100, 50], [10, 10])
    result = engine(
        workload=workload, policy=FixedPolicy(2), models=NONE, cost=TEN_MS, settings=settings
    ).run(1.0)
    # 64 | 36 + 28 | the first decodes, its 3 tokens leave 61: the last 22 of the second.
    assert result.steps.prefill_tok[:4].tolist() == [64, 64, 22, 0]
    assert result.steps.batch_size[:4].tolist() == [1, 2, 2, 2]
    assert result.requests.first_token_s.round(9).tolist() == [0.02, 0.03]


def test_waiting_requests_start_in_order_when_places_are_free() -> None:
    settings = EngineSettings(max_num_seqs=2, async_scheduling=False)
    workload = _traced([0.0, 0.001, 0.002, 0.003], [4] * 4, [10, 20, 10, 10])
    log = engine(workload=workload, models=NONE, cost=TEN_MS, settings=settings).run(2.0).requests
    assert np.argsort(log.scheduled_s).tolist() == [0, 1, 2, 3]
    assert log.scheduled_s[2] == pytest.approx(log.finish_s[0])


@pytest.mark.parametrize(("asynchronous", "joins"), [(True, 4), (False, 3)])
def test_a_place_is_free_once_the_end_of_its_request_is_known(
    asynchronous: bool, joins: int
) -> None:
    """Two places; the second request ends in step 2. Step 3 is then already scheduled if that
    is asynchronous, and the third request joins step 4."""
    settings = EngineSettings(max_num_seqs=2, async_scheduling=asynchronous)
    workload = _traced([0.0] * 3, [4] * 3, [50, 3, 10])
    log = engine(workload=workload, models=NONE, cost=TEN_MS, settings=settings).run(0.3)
    assert np.flatnonzero(log.steps.prefill_tok).tolist() == [0, joins]


def test_an_idle_engine_waits_for_the_next_arrival() -> None:
    workload = _traced([0.5, 2.0], [4, 4], [2, 2])
    for settings in (ASYNC, SYNC):
        result = engine(workload=workload, models=NONE, cost=TEN_MS, settings=settings).run(3.0)
        assert result.requests.first_token_s.round(9).tolist() == [0.51, 2.01]
        assert result.steps.start_s.round(9).tolist() == [0.5, 0.51, 2.0, 2.01]


def test_run_goes_on_where_it_stopped() -> None:
    whole = engine(output=200).run(4.0)
    parts = engine(output=200)
    parts.run(1.3)
    assert parts.run(4.0).steps.end_s.tolist() == whole.steps.end_s.tolist()


def test_a_full_kv_cache_preempts_the_last_and_loses_nothing() -> None:
    policy = Sequenced([3])
    settings = EngineSettings(max_num_seqs=16, kv_capacity_tok=1000)
    requests = 40
    workload = _traced([0.0] * requests, [30] * requests, [150] * requests)
    result = engine(workload=workload, policy=policy, settings=settings).run(60.0)
    assert result.requests.preempted.sum() > 5
    assert policy.most_context_tok <= 1000
    assert result.requests.finished.all()
    assert result.steps.tokens.sum() == requests * 150
    assert result.requests.preempted[0] == 0  # the first is never the last to come


def test_a_preempted_request_computes_its_output_again_and_stays_as_good_as_it_was() -> None:
    """Two prompts of 15 tokens in a cache of 40: the second has to make room for the first."""
    good_and_bad = [AcceptanceModel([0.5] * 4, spread=3.0)]
    settings = EngineSettings(max_num_seqs=2, kv_capacity_tok=40, async_scheduling=False)
    simulated = engine(
        workload=_traced([0.0, 0.0], [15, 15], [20, 20]),
        policy=FixedPolicy(0),
        models=good_and_bad,
        cost=TEN_MS,
        settings=settings,
    )
    before = simulated.run(0.015)
    scheduler = simulated._scheduler
    qualities = list(scheduler.slots.quality)
    assert before.steps.prefill_tok.tolist() == [30, 0]
    result = simulated.run(1.0)
    assert result.requests.preempted.tolist() == [0, 1]
    # Step 0 gives each its first token; with one more a step, 2·(15 + n) + 2 <= 40 until n = 4.
    again = result.steps.prefill_tok[2:]
    assert again[again > 0].tolist() == [15 + 5]
    assert scheduler.slots.quality[0] == qualities[1]  # the first is done, its place taken over
    assert result.requests.finished.all()
    assert scheduler.context_tok == 0


def test_an_unlimited_cache_preempts_nobody() -> None:
    assert engine(ClosedLoop(16), output=300).run(5.0).requests.preempted.sum() == 0


@pytest.mark.parametrize(
    ("policy", "settings", "subject"),
    [
        (FixedPolicy(5), ASYNC, "draft length"),
        (FixedPolicy(1), EngineSettings(max_num_seqs=65), "step_time_s"),
        (FixedPolicy(1), EngineSettings(max_num_batched_tokens=100), "max_num_batched_tokens"),
        (FixedPolicy(1), EngineSettings(max_num_seqs=8, kv_capacity_tok=50), "request"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    policy: FixedPolicy, settings: EngineSettings, subject: str
) -> None:
    with pytest.raises(SimulationError) as caught:
        engine(ClosedLoop(1), policy, settings=settings).run(1.0)
    assert caught.value.subject == subject


def test_an_unknown_step_time_is_an_error_and_not_a_guess() -> None:
    times = constant_times(8)
    times[3:, 2] = np.nan
    cost = StepCost(times)
    assert engine(ClosedLoop(2), FixedPolicy(2), cost=cost, settings=ASYNC).run(1.0)
    with pytest.raises(SimulationError, match="step time"):
        engine(ClosedLoop(3), FixedPolicy(2), cost=cost, settings=ASYNC).run(1.0)


def test_acceptance_can_change_for_requests_in_flight() -> None:
    traffic = (
        Traffic(FixedLength(4), FixedLength(10_000)),
        Traffic(FixedLength(4), FixedLength(10_000), kind=1, from_s=1.0),
    )
    for in_flight, expected in ((True, 1), (False, 4)):
        workload = Workload(ClosedLoop(4), traffic, switch_in_flight=in_flight)
        steps = (
            engine(workload=workload, models=[*ALL, *NONE], cost=TEN_MS, settings=ASYNC)
            .run(2.0)
            .steps
        )
        per_request = steps.tokens[5:] / 4
        assert set(per_request[steps.start_s[5:] < 0.999]) == {4}
        assert set(per_request[steps.start_s[5:] > 1.001]) == {expected}


def test_requests_after_the_switch_follow_the_new_traffic() -> None:
    traffic = (
        Traffic(FixedLength(4), FixedLength(20)),
        Traffic(FixedLength(8), FixedLength(30), kind=1, from_s=2.0),
    )
    workload = Workload(OpenLoop(20.0), traffic)
    log = engine(workload=workload, models=[AcceptanceModel(SURVIVAL), *NONE]).run(4.0).requests
    later = log.arrival_s >= 2.0
    assert 0 < later.sum() < later.size
    assert set(log.output_tok[later]) == {30}
    assert set(log.output_tok[~later]) == {20}
    assert set(log.kind[later]) == {1}
    assert set(log.prompt_tok[~later]) == {4}
