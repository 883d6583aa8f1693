"""The controller for a scenario: what was promoted, and the policy that follows it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tabletune.core.controller.controller import Controller
from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.promoted import Promoted
from tabletune.core.controller.settings import ControllerSettings
from tabletune.simulate.controller_policy import ControllerPolicy
from tabletune.simulate.scenarios.scenario import Scenario

Trace = Callable[[LiveObservation, float, Decision], None]


def promoted(scenario: Scenario) -> Promoted:
    """The start's table as a promoted version, with the step times and survival believed."""
    surface = scenario.surface
    lengths = surface.draft_lengths
    return Promoted(
        lengths=scenario.start_lengths,
        usable=lengths,
        surface=surface,
        prior=scenario.prior,
        envelope=surface.covered,
        max_num_seqs=scenario.settings.max_num_seqs,
        max_draft_length=max(lengths),
        version=f"{scenario.name}, seed {scenario.seed}",
    )


def controller(
    scenario: Scenario,
    settings: ControllerSettings | None = None,
    trace: Trace | None = None,
) -> ControllerPolicy:
    """The controller as the plugin would run it; its boot table is the start's."""
    rng = np.random.default_rng([scenario.seed, 5])
    inside = Controller(
        settings or ControllerSettings(), promoted(scenario), scenario.start_lengths, rng
    )
    return ControllerPolicy(inside, trace=trace)
