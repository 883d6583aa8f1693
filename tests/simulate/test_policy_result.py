"""Tables as policies, a promotion in time, and the figures of a result."""

import numpy as np
import pytest

from tabletune.simulate.acceptance import AcceptanceModel
from tabletune.simulate.errors import SimulationError
from tabletune.simulate.loads import ClosedLoop
from tabletune.simulate.policy import (
    FOREVER,
    FixedPolicy,
    Observation,
    ScheduledPolicy,
    TablePolicy,
)
from tabletune.simulate.result import percentiles
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import StepCost
from tests.simulate.scenes import constant_times, engine

SYNC = EngineSettings(max_num_seqs=8, async_scheduling=False)


def _length(policy: TablePolicy | ScheduledPolicy, batch_size: int, now_s: float = 0.0) -> int:
    return policy.draft_length(batch_size, Observation(now_s=now_s))


def test_rows_become_a_table_as_vllm_reads_them() -> None:
    table = TablePolicy.from_rows([(6, 8, 1), (1, 2, 3)])
    assert table.draft_lengths == (3, 3, 3, 3, 3, 1, 1, 1)
    assert [_length(table, b) for b in (1, 5, 6, 8, 9, 500)] == [3, 3, 1, 1, 1, 1]
    assert table.steady_steps(Observation()) == FOREVER


@pytest.mark.parametrize("rows", [[(2, 8, 3)], [(1, 4, 3), (4, 8, 1)], [], [(1, 4, -1)]])
def test_rows_that_vllm_refuses_are_refused(rows: list[tuple[int, int, int]]) -> None:
    with pytest.raises(SimulationError):
        TablePolicy.from_rows(rows)


def test_a_promotion_comes_into_force_in_time() -> None:
    policy = ScheduledPolicy([(0.0, FixedPolicy(0)), (0.5, FixedPolicy(3))])
    assert [_length(policy, 4, t) for t in (0.0, 0.49, 0.5, 9.0)] == [0, 0, 3, 3]
    steps = engine(
        ClosedLoop(2), policy, output=1000, cost=StepCost(constant_times(8)), settings=SYNC
    ).run(1.0)
    assert steps.steps.draft_length.tolist() == [0] * 50 + [3] * 50


def test_the_figures_of_a_result() -> None:
    """One client, no acceptance: 5 tokens in 5 steps of 10 ms, then the next request."""
    result = engine(
        ClosedLoop(1),
        FixedPolicy(1),
        prompt=3,
        output=5,
        models=[AcceptanceModel([0.0] * 4)],
        cost=StepCost(constant_times(8)),
        settings=SYNC,
    ).run(1.0)
    assert result.throughput_tok_s() == pytest.approx(100.0)
    assert result.throughput_tok_s(0.105, 0.125) == pytest.approx(100.0)
    assert result.throughput_windows_tok_s(0.25) == pytest.approx([100.0] * 4)
    assert result.ttft_s() == pytest.approx([0.01] * 20)
    assert result.tpot_s() == pytest.approx([0.01] * 20)
    assert result.ttft_s(from_s=0.901).size == 1
    assert result.cell_steps() == {(1, 1): 100}
    assert result.cell_steps(from_s=0.5) == {(1, 1): 50}
    assert result.mean_batch_size() == pytest.approx(1.0)
    assert percentiles(np.arange(101.0)) == {50: 50.0, 90: 90.0, 99: 99.0}
    assert np.isnan(percentiles(np.array([]))[50])
