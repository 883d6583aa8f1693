"""How good a policy's choices were, without the luck of what was accepted.

A window's throughput tells it too, but a policy that differs from another in 1 % of its steps
drowns in the noise of acceptance. So each step that was run is also valued by what it takes on
average: the time that the reference table would have needed for the same expected tokens, over
the time that the step takes. Batch sizes are those that the policy itself met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tabletune.core.words import FloatArray
from tabletune.simulate.result import SimulationResult, StepLog
from tabletune.simulate.scenarios.scenario import Scenario, Window

Ints = npt.NDArray[np.int64]


def expected_share(
    result: SimulationResult, scenario: Scenario, window: Window, reference: Sequence[int]
) -> float:
    """Expected throughput as a share of the reference table's, over the steps of a window.

    reference: its draft lengths, [b-1]. Prompts, context and noise cost both the same. 1 if no
    step decodes.
    """
    ran = _within(result.steps, window)
    if ran.decodes.size == 0:
        return 1.0
    lengths = np.array([0, *reference], dtype=np.int64)[ran.chosen_at]
    spent_s, needed_s = _times(scenario, window, ran.decodes, ran.verified, lengths)
    same_s = ran.whole_s - spent_s
    return (same_s + needed_s) / (same_s + spent_s)


def probe_cost(
    result: SimulationResult,
    scenario: Scenario,
    window: Window,
    tables: Sequence[tuple[float, Sequence[int]]],
) -> tuple[float, float]:
    """(share of the steps, share of the throughput lost) of steps that ran another length than
    the table in force; negative where the other length was better.

    tables: (from_s, draft lengths [b-1]) in order of time, the first from 0 s.
    """
    ran = _within(result.steps, window)
    if ran.decodes.size == 0:
        return 0.0, 0.0
    begun = np.array([from_s for from_s, _ in tables])
    dense = np.array([[0, *lengths] for _, lengths in tables], dtype=np.int64)
    row = np.searchsorted(begun, ran.chosen_s, side="right") - 1
    lengths = dense[np.maximum(row, 0), ran.chosen_at]
    probing = ran.verified != lengths
    spent_s, needed_s = _times(
        scenario, window, ran.decodes[probing], ran.verified[probing], lengths[probing]
    )
    return float(probing.mean()), (spent_s - needed_s) / ran.whole_s


@dataclass(frozen=True, eq=False)
class _Ran:
    """The decoding steps of a window. decodes, verified: int64[n]. chosen_at, chosen_s: batch
    size and start of the step before each, in which its length was chosen. whole_s: all time."""

    decodes: Ints
    verified: Ints
    chosen_at: Ints
    chosen_s: FloatArray
    whole_s: float


def _within(steps: StepLog, window: Window) -> _Ran:
    inside = (steps.start_s >= window.from_s) & (steps.start_s < window.until_s)
    rows = np.flatnonzero(inside & (steps.decode_requests > 0))
    before = np.maximum(rows - 1, 0)
    return _Ran(
        steps.decode_requests[rows],
        steps.verified_length[rows],
        steps.batch_size[before],
        steps.start_s[before],
        float(steps.step_time_s[rows].sum()),
    )


def _times(
    scenario: Scenario, window: Window, decodes: Ints, verified: Ints, lengths: Ints
) -> tuple[float, float]:
    """(seconds of the steps, seconds that `lengths` need for their expected tokens)."""
    tokens: FloatArray = scenario.expected_tokens_at(window.from_s)
    times = scenario.cost.step_time_s
    spent = times[decodes, verified]
    needed = times[decodes, lengths] * tokens[verified] / tokens[lengths]
    return float(spent.sum()), float(needed.sum())
