"""From a real engine's steps to a simulated engine: by recordings of a simulated one."""

from dataclasses import replace

import numpy as np
import pytest

from bench.simulator_model import (
    Overheads,
    RealEngine,
    counts_of,
    overheads,
    own_overheads,
    own_times_s,
    simulate_tok_s,
    summary,
    throughput_tok_s,
)
from tabletune.core.survival import proposal_rate, survival
from tabletune.measure.steps import StepBatch
from tabletune.simulate.policy import FixedPolicy

TIMES = 0.05 + 0.004 * np.arange(9)[:, None] * (1 + np.arange(4))
TRUE = Overheads(prefill_step_s=0.02, prefill_s_per_tok=0.0005, think_s=0.03)


def batch(rows: list[dict[str, float]]) -> StepBatch:
    """Steps of the given columns; what is missing is 0."""

    def column(name: str, kind: type) -> np.ndarray:
        return np.array([row.get(name, 0) for row in rows], dtype=kind)

    names = ("batch_size", "draft_length", "verified_length", "drafted_tok", "scheduled_tok")
    names += ("prefill_requests", "output_tok", "request_steps", "graph_mode", "padded_tok")
    through = np.array([row.get("drafted", [0, 0, 0]) for row in rows], dtype=np.int64)
    accepted = np.array([row.get("accepted", [0, 0, 0]) for row in rows], dtype=np.int64)
    return StepBatch(
        seq=np.arange(len(rows)),
        time_s=column("time_s", float),
        interval_s=column("interval_s", float),
        **{name: column(name, int) for name in names},
        drafted_through=through,
        accepted_through=accepted,
    )


def prefill(decodes: int, tokens: int) -> dict[str, float]:
    seconds = TIMES[decodes, 0] + TRUE.prefill_step_s + TRUE.prefill_s_per_tok * tokens
    return {
        "batch_size": decodes + 1,
        "prefill_requests": 1,
        "scheduled_tok": decodes + tokens,
        "interval_s": seconds,
    }


def test_prompt_costs_and_the_clients_pause_are_found() -> None:
    several = batch([prefill(d, t) for d, t in ((3, 40), (5, 80), (7, 20), (2, 160), (4, 100))])
    rows: list[dict[str, float]] = []
    now_s = 0.0
    for tokens in (50, 120, 70):
        own = TIMES[1, 0] + TRUE.prefill_step_s + TRUE.prefill_s_per_tok * tokens
        now_s += TRUE.think_s + own
        first = {"time_s": now_s, "batch_size": 1, "prefill_requests": 1, "scheduled_tok": tokens}
        now_s += TIMES[1, 0]
        rows += [first, {"time_s": now_s, "batch_size": 1, "scheduled_tok": 1}]
    found = overheads(several, batch(rows), TIMES)
    assert found.prefill_step_s == pytest.approx(TRUE.prefill_step_s)
    assert found.prefill_s_per_tok == pytest.approx(TRUE.prefill_s_per_tok)
    assert found.think_s == pytest.approx(TRUE.think_s)


def test_prompt_costs_of_the_windows_themselves() -> None:
    line = Overheads(0.0, 0.0, 0.5)
    several = [batch([prefill(3, 40)]), batch([prefill(5, 80)])]
    found = own_overheads(several, 8, TIMES, line)
    spent_s = 2 * TRUE.prefill_step_s + 120 * TRUE.prefill_s_per_tok
    assert found.prefill_s_per_tok == pytest.approx(spent_s / 120)
    assert found.think_s == 0.5
    rows = [{"time_s": 1.0}, {"time_s": 1.4, "prefill_requests": 1, "scheduled_tok": 50}]
    pause = own_overheads([batch(rows)], 1, TIMES, line)
    assert pause.think_s == pytest.approx(0.4 - TIMES[1, 0])
    assert own_overheads([batch(rows[:1])], 1, TIMES, line) is line


def test_counts_follow_the_length_in_force() -> None:
    rows = [
        {"verified_length": 3, "request_steps": 4, "drafted": [3, 2, 2], "accepted": [2, 1, 0]},
        {"verified_length": 1, "request_steps": 4, "drafted": [4, 0, 0], "accepted": [2, 0, 0]},
        {"verified_length": 0, "request_steps": 0},
        {"verified_length": -1, "request_steps": 4, "drafted": [4, 4, 4], "accepted": [4, 4, 4]},
    ]
    counts = counts_of([batch(rows)], 3)
    assert counts.request_steps == 8
    assert survival(counts).tolist() == pytest.approx([4 / 7, 1 / 2, 0.0])
    assert proposal_rate(counts).tolist() == pytest.approx([7 / 8, 2 / 4, 2 / 4])


def test_own_step_times_replace_the_profile_where_enough_were_seen() -> None:
    steady = {"batch_size": 4, "verified_length": 3, "interval_s": 0.2}
    rows = [steady] * 8 + [steady | {"prefill_requests": 1, "interval_s": 9.0}]
    rows += [{"batch_size": 2, "verified_length": 0, "interval_s": 0.3}] * 7
    own = own_times_s([batch(rows)], 3, TIMES)
    assert own[4, 3] == pytest.approx(0.2)
    own[4, 3] = TIMES[4, 3]
    np.testing.assert_array_equal(own, TIMES)


def test_throughput_leaves_out_the_first_steps_tokens() -> None:
    rows = [{"time_s": t, "output_tok": n} for t, n in ((1.0, 9), (1.5, 3), (3.0, 5))]
    assert throughput_tok_s(batch(rows)) == pytest.approx(4.0)


def test_the_simulated_engine_is_the_told_one() -> None:
    """One request at a time: prompt, then steps, then the pause, worked out by hand."""
    counts = counts_of([], 3)
    real = RealEngine(TRUE, (100,), 21, async_scheduling=False, max_num_seqs=8)
    simulated = simulate_tok_s(real, TIMES, counts, FixedPolicy(0), 1)
    prompt_s = TIMES[1, 0] + TRUE.prefill_step_s + 100 * TRUE.prefill_s_per_tok
    request_s = prompt_s + 20 * TIMES[1, 0] + TRUE.think_s
    assert simulated == pytest.approx(21 / request_s, rel=0.01)
    quick = replace(real, overheads=replace(TRUE, think_s=0.0))
    assert simulate_tok_s(quick, TIMES, counts, FixedPolicy(0), 1) > 1.02 * simulated


def test_the_summary_takes_the_worst_error_whatever_its_sign() -> None:
    rows = [
        {"concurrency": 1, "error": 0.01, "error_own_times": 0.0},
        {"concurrency": 1, "error": -0.04, "error_own_times": 0.01},
        {"concurrency": 4, "error": 0.02, "error_own_times": 0.0},
    ]
    found = summary(rows, 0.05)
    assert found["1 open requests"]["largest_error"] == 0.04
    assert found["simulator_holds"]
    assert found["profile_holds"]
    rows.append({"concurrency": 8, "error": -0.06, "error_own_times": 0.0})
    found = summary(rows, 0.05)
    assert found["simulator_holds"]
    assert not found["profile_holds"]
    rows.append({"concurrency": 8, "error": 0.0, "error_own_times": -0.07})
    assert not summary(rows, 0.05)["simulator_holds"]
