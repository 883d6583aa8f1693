"""The policies that are compared in a scenario, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tabletune.simulate.policy import FixedPolicy, Policy
from tabletune.simulate.rivals.acceptance_tiers import (
    ONE_SLOT,
    SLOTS_BY_BATCH,
    AcceptanceTiersPolicy,
)
from tabletune.simulate.rivals.documented_table import documented_table
from tabletune.simulate.rivals.fitted_goodput import FittedGoodputPolicy, FittedStepTime
from tabletune.simulate.rivals.length_schedule import LengthSchedulePolicy
from tabletune.simulate.rivals.switching_bandit import SwitchingBanditPolicy
from tabletune.simulate.scenarios.scenario import Scenario

SCHEDULE = {4: 4, 8: 2, 32: 1}
"""The schedule printed in TensorRT-LLM's documentation."""

PROFILED = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
"""Batch sizes that a fitted model is fitted to."""


def rivals(scenario: Scenario) -> dict[str, Callable[[], Policy]]:
    """Fixed lengths and the other systems' ways, each as a maker of a fresh policy. What they
    believe about step times is what the scenario promoted."""
    longest = scenario.cost.max_draft_length
    makers: dict[str, Callable[[], Policy]] = {f"fixed {k}": _fixed(k) for k in range(longest + 1)}
    return makers | {
        "documented table": lambda: documented_table("eagle3", longest),
        "TensorRT-LLM-style": lambda: LengthSchedulePolicy(SCHEDULE),
        "SGLang-style, one slot": lambda: AcceptanceTiersPolicy(ONE_SLOT, longest),
        "SGLang-style, slots": lambda: AcceptanceTiersPolicy(SLOTS_BY_BATCH, longest),
        "TurboSpec-style": lambda: FittedGoodputPolicy(fitted(scenario), longest),
        "Nightjar-style": lambda: SwitchingBanditPolicy(
            longest, np.random.default_rng([scenario.seed, 3])
        ),
    }


def fitted(scenario: Scenario) -> FittedStepTime:
    """TurboSpec-style's model, fitted to the promoted step times."""
    surface = scenario.surface
    cells = {
        (b, k): surface.step_time_s(b, k)
        for b in PROFILED
        for k in surface.draft_lengths
        if surface.covered(b, k)
    }
    return FittedStepTime.fit(cells)


def _fixed(draft_length: int) -> Callable[[], Policy]:
    return lambda: FixedPolicy(draft_length)
