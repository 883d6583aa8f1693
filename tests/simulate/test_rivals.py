"""Each rival's decision rule against cases worked out by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from tabletune.core.goodput import expected_tokens
from tabletune.simulate.errors import SimulationError
from tabletune.simulate.loads import ClosedLoop
from tabletune.simulate.policy import FOREVER, FixedPolicy, Observation, Policy, Steps, TablePolicy
from tabletune.simulate.rivals.acceptance_tiers import (
    ONE_SLOT,
    SLOTS_BY_BATCH,
    AcceptanceTiersPolicy,
    TierOptions,
)
from tabletune.simulate.rivals.documented_table import documented_table
from tabletune.simulate.rivals.fitted_goodput import (
    FittedGoodputOptions,
    FittedGoodputPolicy,
    FittedStepTime,
    geometric_tokens,
)
from tabletune.simulate.rivals.length_schedule import LengthSchedulePolicy
from tabletune.simulate.rivals.oracle import oracle
from tabletune.simulate.rivals.switching_bandit import BanditOptions, SwitchingBanditPolicy
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import Noise, StepCost, step_times
from tests.simulate.scenes import SURVIVAL, engine, h200_surface


def _steps(
    batch_size: int = 10,
    *,
    length: int = 2,
    accepted: Sequence[int] = (),
    drafted: Sequence[int] | None = None,
    seconds: float = 0.01,
    tokens: int = 10,
) -> Steps:
    """A step that verified as many positions as `accepted` has."""
    full = [batch_size] * len(accepted)
    return Steps(
        start_s=0.0,
        step_time_s=np.array([seconds]),
        tokens=np.array([tokens]),
        batch_size=batch_size,
        decode_requests=batch_size,
        prefill_requests=0,
        prefill_tok=0,
        context_tok=0,
        draft_length=length,
        verified_length=len(accepted),
        drafted_through=np.array([full if drafted is None else drafted], dtype=np.int64),
        accepted_through=np.array([accepted], dtype=np.int64),
    )


def _ask(policy: Policy, batch_size: int, step: int = 0, last: int = 0) -> int:
    return policy.draft_length(batch_size, Observation(step=step, last_draft_length=last))


# The documented table


def test_the_documented_tables_as_printed_and_clamped() -> None:
    plain = documented_table("eagle", 3)
    assert [_ask(plain, b) for b in (1, 64, 65, 128, 129, 512)] == [3, 3, 1, 1, 0, 0]
    eagle3 = documented_table("eagle3", 4)
    assert [_ask(eagle3, b) for b in (1, 16, 17, 32, 33, 64, 65, 129)] == [4, 4, 4, 4, 3, 3, 1, 0]


# TensorRT-LLM-style


def test_a_schedule_has_upper_bounds_and_zero_above() -> None:
    policy = LengthSchedulePolicy({4: 4, 8: 2, 32: 1}, max_concurrency=20)
    asked = {1: 4, 4: 4, 5: 2, 8: 2, 9: 1, 20: 1, 21: 0, 33: 0}
    assert {b: _ask(policy, b) for b in asked} == asked
    assert policy.steady_steps(Observation()) == FOREVER


def test_poor_acceptance_disables_drafting_for_ever() -> None:
    """Window of 4 steps, threshold 0.4: shares 0.6, 0.5, 0.3, 0.3 have mean 0.425, and with
    another 0.3 in place of the 0.6 mean 0.35."""
    policy = LengthSchedulePolicy({64: 2}, acceptance_window=4, acceptance_threshold=0.4)
    for accepted in ([8, 4], [6, 4], [4, 2], [4, 2]):
        assert _ask(policy, 10) == 2
        policy.observe(_steps(accepted=accepted))
    assert not policy.disabled
    policy.observe(_steps(accepted=[]))  # a step without guesses tells nothing
    assert not policy.disabled
    policy.observe(_steps(accepted=[4, 2]))
    assert policy.disabled
    for _ in range(20):
        policy.observe(_steps(accepted=[10, 10]))
    assert _ask(policy, 1) == 0


def test_the_schedule_cannot_be_empty() -> None:
    with pytest.raises(SimulationError):
        LengthSchedulePolicy({})


# SGLang-style


def _after(policy: AcceptanceTiersPolicy, per_request: float, steps: int, batch: int = 10) -> int:
    for _ in range(steps):
        k = _ask(policy, batch)
        accepted = [round(min(per_request, k) * batch)] + [0] * (k - 1) if k else []
        policy.observe(_steps(batch, length=k, accepted=accepted))
    return _ask(policy, batch)


def test_tiers_follow_the_smoothed_accepted_length() -> None:
    """From 3 (mean 2.0 at first). With 0 accepted the mean is 2·0.8^n: at the first decision,
    after 10 + 5 steps, 0.07, below 1 - 0.5 - 0.25: down to 1."""
    policy = AcceptanceTiersPolicy(ONE_SLOT, longest=7, start=3)
    assert _ask(policy, 10) == 3
    assert _after(policy, 0.0, 14) == 3
    assert _after(policy, 0.0, 1) == 1


def test_tiers_step_up_above_the_present_tier_minus_a_half() -> None:
    """From 1 (mean 0) with 0.7 accepted of 1: after 15 steps 0.7·(1 - 0.8^15) = 0.675 > 0.5: up
    to 3, and not to 7, as 0.675 <= 2.5. At 3 with 2.9 accepted the mean passes 2.5 after 9."""
    policy = AcceptanceTiersPolicy(ONE_SLOT, longest=7, start=1)
    assert _after(policy, 0.7, 15) == 3
    assert _after(policy, 2.9, 5) == 3
    assert _after(policy, 2.9, 5) == 7


def test_the_hysteresis_delays_the_step_down() -> None:
    """Tiers 1 and 3: down where the mean is at most 0.25; without hysteresis at 0.5."""
    for hysteresis, expected in ((-0.25, 3), (0.0, 1)):
        options = TierOptions(down_hysteresis=hysteresis)
        policy = AcceptanceTiersPolicy({1: (1, 3)}, longest=3, start=3, options=options)
        assert _after(policy, 0.4, 30) == expected


def test_no_drafting_is_tried_again_at_the_next_decision() -> None:
    """Tiers 0 and 1 from 1 (mean 0): 0 <= 0.5: down to 0; five steps later up again."""
    policy = AcceptanceTiersPolicy({1: (0, 1)}, longest=4, start=1)
    lengths = [_after(policy, 0.0, 1) for _ in range(25)]
    assert lengths == [1] * 14 + [0] * 5 + [1] * 5 + [0]


def test_slots_by_batch_size_learn_apart() -> None:
    policy = AcceptanceTiersPolicy(SLOTS_BY_BATCH, longest=4)
    assert [_ask(policy, b) for b in (1, 7, 8, 31, 32, 63, 64, 200)] == [4, 4, 1, 1, 1, 1, 0, 0]
    before = _ask(policy, 8)
    _after(policy, 0.0, 15, batch=2)
    assert _ask(policy, 2) == 1
    assert _ask(policy, 8) == before


def test_the_tiers_promise_of_steadiness_holds() -> None:
    policy = AcceptanceTiersPolicy(ONE_SLOT, longest=7, start=3)
    for _ in range(60):
        steady, length = policy.steady_steps(Observation()), _ask(policy, 10)
        assert steady >= 1
        for _ in range(steady - 1):
            assert _after(policy, 0.0, 1) == length
        _after(policy, 3.0, 1)


# TurboSpec-style


def test_the_fit_finds_a_linear_engine_again() -> None:
    cells = {
        (b, k): 0.004 + 2e-5 * b * (k + 1) + 1e-5 * b + 0.001 * (k > 0)
        for b in (1, 8, 64)
        for k in (0, 1, 3)
    }
    model = FittedStepTime.fit(cells, measured_below=0, context_s_per_tok=1e-7)
    assert model.coefficients == pytest.approx([2e-5, 1e-5, 0.001, 0.004])
    assert model.step_time_s(32, 2) == pytest.approx(0.004 + 0.00192 + 0.00032 + 0.001)
    assert model.step_time_s(32, 2, 1000) == pytest.approx(0.00724 + 1e-4)


def test_measured_cells_are_preferred_at_small_batches() -> None:
    cells = {(b, k): 0.01 + 0.001 * b * (k + 1) for b in (1, 16, 64) for k in (0, 2)}
    cells[16, 2] = 0.5
    model = FittedStepTime.fit(cells)
    assert model.step_time_s(16, 2) == 0.5
    assert model.step_time_s(17, 2) != 0.5
    assert model.step_time_s(64, 2) != cells[64, 2]


class _Table(FittedStepTime):
    """Step times by draft length alone."""

    def __init__(self, times: Sequence[float]) -> None:
        super().__init__(np.zeros(4), {})
        object.__setattr__(self, "times", times)

    def step_time_s(self, batch_size: int, draft_length: int, context_tok: int = 0) -> float:
        return self.times[draft_length]  # type: ignore[attr-defined]


def test_the_scan_stops_at_the_first_fall() -> None:
    """a = 0.5: 1, 1.5, 1.75, 1.875 tokens. Times 1, 1.2, 1.5, 1.45: 1.1·1, 1.25, 1.17, 1.29 per
    request and second: the scan stops before 3, the best."""
    options = FittedGoodputOptions(initial_acceptance=0.5)
    assert geometric_tokens(0.5, 3) == 1.875
    assert _ask(FittedGoodputPolicy(_Table([1, 1.2, 1.5, 1.45]), 3, options), 10) == 1
    assert _ask(FittedGoodputPolicy(_Table([1, 1.2, 1.3, 1.45]), 3, options), 10) == 2
    # 1.5 / 1.4 = 1.07 is less than the 1.1 of not drafting, and more than 1.
    assert _ask(FittedGoodputPolicy(_Table([1, 1.4, 3, 3]), 3, options), 10) == 0
    no_bonus = FittedGoodputOptions(initial_acceptance=0.5, no_draft_bonus=1.0)
    assert _ask(FittedGoodputPolicy(_Table([1, 1.4, 3, 3]), 3, no_bonus), 10) == 1


def test_the_acceptance_rate_is_smoothed_and_needs_guesses() -> None:
    policy = FittedGoodputPolicy(_Table([1, 1, 1]), 2)
    policy.observe(_steps(accepted=[5, 3]))  # 8 of 20
    assert policy.acceptance == pytest.approx(0.85 * 0.7 + 0.15 * 0.4)
    assert policy.proposing == pytest.approx(1.0)
    policy.observe(_steps(accepted=[]))
    assert policy.acceptance == pytest.approx(0.655)
    policy.observe(_steps(accepted=[0, 0], drafted=[0, 0]))
    assert policy.acceptance == pytest.approx(0.655)
    assert policy.proposing == pytest.approx(0.85)
    # Five requests of ten propose: (8.5·1.655 + 1.5) / 1 with the smoothed share.
    assert policy.goodput_tok_s(10, 1) == pytest.approx(8.5 * 1.655 + 1.5)


def test_a_choice_holds_for_its_interval() -> None:
    options = FittedGoodputOptions(interval_steps=20, initial_acceptance=0.5)
    policy = FittedGoodputPolicy(_Table([1, 1.2, 1.3]), 2, options)
    assert _ask(policy, 10, step=0) == 2
    assert policy.steady_steps(Observation(step=0)) == 20
    policy.acceptance = 0.0
    assert _ask(policy, 10, step=19) == 2
    assert _ask(policy, 10, step=20) == 0


# Nightjar-style


def _bandit(**options: object) -> SwitchingBanditPolicy:
    made = BanditOptions(**options)  # type: ignore[arg-type]
    return SwitchingBanditPolicy(3, np.random.default_rng(0), made)


def test_the_greedy_arm_pays_for_starting_to_draft() -> None:
    """Seconds per token 0.010, 0.009, 0.008, 0.0085; starting costs 0.006/K: from K=0 the prices
    are 0.010, 0.015, 0.011, 0.0105, so it stays; while drafting 2 is best."""
    policy = _bandit(switch_cost_s=lambda batch_size: 0.006)
    loss = {0: (0.10, 10), 1: (0.09, 10), 2: (0.08, 10), 3: (0.085, 10)}
    assert policy.greedy(loss, 8, last_draft_length=0) == 0
    assert policy.greedy(loss, 8, last_draft_length=1) == 2
    assert _bandit().greedy(loss, 8, last_draft_length=0) == 2
    # At 0.0024/K the prices are 0.010, 0.0114, 0.0092, 0.0093.
    cheap = _bandit(switch_cost_s=lambda batch_size: 0.0024)
    assert cheap.greedy(loss, 8, last_draft_length=0) == 2
    assert _bandit().greedy({0: (0.1, 10), 2: (0.1, 10)}, 8, 1) == 1  # untried first


def test_an_arm_is_locked_for_its_bin_and_blocks_double() -> None:
    policy = _bandit(bin_steps=3, context_width=8)
    assert [policy.context_of(b) for b in (1, 8, 9)] == [8, 8, 16]
    bins = []
    for _ in range(60):
        arms = set()
        for _ in range(3):
            arms.add(_ask(policy, 5))
            policy.observe(_steps(5, length=_ask(policy, 5), accepted=[0] * _ask(policy, 5)))
        assert len(arms) == 1
        context = policy._contexts[8]
        bins.append((context.block, context.bin))
    # After bin 1 of block 1 comes bin 1 of block 2, and block j has 2^(j-1) bins.
    assert bins[:7] == [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (3, 4), (4, 1)]


def test_the_bandit_explores_in_the_first_bin_of_a_block_and_seldom_later() -> None:
    """With 1/i: over the 64 bins of block 7 about 1 + 1/2 + … + 1/64 = 4.7 explorations."""
    shares = []
    for seed in range(40):
        policy = SwitchingBanditPolicy(3, np.random.default_rng(seed), BanditOptions(bin_steps=1))
        worse = 0
        for i in range(127):
            k = _ask(policy, 8)
            if i >= 63:
                worse += k != 1
            tokens = {0: 10, 1: 20, 2: 12, 3: 11}[k]
            policy.observe(_steps(8, length=k, accepted=[0] * k, tokens=tokens))
        shares.append(worse)
    # A quarter of the explorations draws the best arm.
    assert np.mean(shares) == pytest.approx(4.74 * 0.75, rel=0.25)


def test_contexts_learn_apart() -> None:
    policy = _bandit(bin_steps=1)
    for _ in range(300):
        for batch, best in ((4, 3), (40, 0)):
            k = _ask(policy, batch)
            tokens = 100 if k == best else 20
            policy.observe(_steps(batch, length=k, accepted=[0] * k, tokens=tokens))
    contexts = policy._contexts
    assert policy.greedy(contexts[8].loss, 8, 1) == 3
    assert policy.greedy(contexts[40].loss, 40, 1) == 0


# Together


def test_the_oracle_is_the_argmax() -> None:
    cost = StepCost(np.array([[np.nan] * 3, [1.0, 1.2, np.nan], [1.0, 2.0, 2.1]]))
    assert oracle(cost, np.array([1.0, 1.5, 3.0])).draft_lengths == (1, 2)
    assert oracle(cost, np.array([1.0, 1.5])).draft_lengths == (1, 0)


def _throughput(policy: Policy, clients: int, cost: StepCost) -> float:
    settings = EngineSettings(max_num_seqs=128)
    run = engine(ClosedLoop(clients), policy, output=400, cost=cost, settings=settings).run(12.0)
    return run.throughput_tok_s(4.0)


@pytest.mark.parametrize("clients", [4, 100])
def test_every_rival_serves_and_none_beats_the_oracle(clients: int) -> None:
    surface = h200_surface()
    times = step_times(surface, 128)
    times[:, 1] = (times[:, 0] + times[:, 2]) / 2  # not recorded up to 128
    cost = StepCost(times, noise=Noise(0.02))
    tokens = expected_tokens(SURVIVAL)
    cells = {(b, k): float(times[b, k]) for b in (1, 4, 16, 32, 64, 128) for k in range(5)}
    rivals: dict[str, Policy] = {
        "documented": documented_table("eagle3", 4),
        "tensorrt-llm": LengthSchedulePolicy({4: 4, 8: 2, 32: 1}, None, 50, 0.1),
        "sglang": AcceptanceTiersPolicy(SLOTS_BY_BATCH, 4),
        "sglang, one slot": AcceptanceTiersPolicy(ONE_SLOT, 4),
        "turbospec": FittedGoodputPolicy(FittedStepTime.fit(cells), 4),
        "nightjar": SwitchingBanditPolicy(4, np.random.default_rng(0)),
        **{f"fixed {k}": FixedPolicy(k) for k in range(5)},
    }
    best = _throughput(oracle(cost, tokens), clients, cost)
    shares = {name: _throughput(policy, clients, cost) / best for name, policy in rivals.items()}
    assert all(0.4 < share < 1.02 for share in shares.values()), shares
    assert isinstance(oracle(cost, tokens), TablePolicy)
    if clients == 4:
        assert shares["turbospec"] > 0.9
        assert shares["tensorrt-llm"] > 0.99  # its schedule drafts 4 there, the best


def test_a_rival_that_decides_seldom_is_the_same_in_blocks() -> None:
    """The promise of `steady_steps`: blocks change nothing for policies that learn."""
    times = step_times(h200_surface(), 128)
    times[:, 1] = (times[:, 0] + times[:, 2]) / 2
    cells = {(b, k): float(times[b, k]) for b in (1, 4, 16, 32, 64, 128) for k in range(5)}
    makers = [
        lambda: AcceptanceTiersPolicy(ONE_SLOT, 4),
        lambda: SwitchingBanditPolicy(4, np.random.default_rng(0)),
        lambda: FittedGoodputPolicy(
            FittedStepTime.fit(cells), 4, FittedGoodputOptions(interval_steps=20)
        ),
        lambda: LengthSchedulePolicy({64: 4}, None, 40, 0.449),
    ]
    for make in makers:
        lengths = []
        for blocks in (True, False):
            settings = EngineSettings(max_num_seqs=128, block_steps=blocks)
            run = engine(
                ClosedLoop(3), make(), output=300, cost=StepCost(times), settings=settings
            ).run(6.0)
            lengths.append(run.steps.draft_length.tolist())
        assert lengths[0] == lengths[1]
        assert len(set(lengths[0])) > 1 or isinstance(make(), LengthSchedulePolicy)
