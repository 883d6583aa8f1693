"""One scenario: an engine, its traffic, and what whoever tunes it believes beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tabletune.core.surface import StepTimes
from tabletune.core.survival import SurvivalCounts
from tabletune.core.words import FloatArray
from tabletune.simulate.engine import Engine
from tabletune.simulate.lengths import Lengths, LognormalLength
from tabletune.simulate.loads import Load
from tabletune.simulate.policy import Policy, ScheduledPolicy, TablePolicy
from tabletune.simulate.rivals.oracle import oracle
from tabletune.simulate.scenarios.kinds import Kind, models
from tabletune.simulate.scenarios.tables import GridStepTimes, tuned_lengths
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import StepCost
from tabletune.simulate.workload import Traffic, Workload

PROMPTS = LognormalLength(128, 0.5, 16, 1024)
OUTPUTS = LognormalLength(256, 0.4, 32, 1024)


@dataclass(frozen=True)
class Window:
    """Where a scenario is scored, in simulated seconds; `name` says what happened before."""

    name: str
    from_s: float
    until_s: float


@dataclass(frozen=True, eq=False)
class Scenario:
    """A simulated engine and what is believed about it.

    cost: the true step times. phases: (from_s, kind of traffic), the first from 0 s.
    surface, prior: what was promoted with the table: step times and survival as believed.
    start_lengths: the table in force at the start, [b-1]; who never changes keeps it.
    windows: where it is scored. in_flight: open requests change their kind at a switch too.
    """

    name: str
    seed: int
    load: Load
    cost: StepCost
    phases: tuple[tuple[float, Kind], ...]
    surface: StepTimes
    prior: SurvivalCounts
    start_lengths: tuple[int, ...]
    windows: tuple[Window, ...]
    prompts: Lengths = PROMPTS
    outputs: Lengths = OUTPUTS
    in_flight: bool = False
    settings: EngineSettings = field(default_factory=EngineSettings)

    @property
    def end_s(self) -> float:
        return max(window.until_s for window in self.windows)

    def tuned_lengths(self, kind: Kind) -> tuple[int, ...]:
        """The table for a kind of traffic by the true step times and the true survival."""
        true = GridStepTimes(self.cost.step_time_s)
        return tuned_lengths(true, kind.expected_tokens(), self.settings.max_num_seqs)

    def tuned(self) -> Policy:
        """The tuned table of each phase, changed at once when the traffic does."""
        return self._by_phase([self.tuned_lengths(kind) for _, kind in self.phases])

    def oracle(self) -> Policy:
        """The same without the builder's smoothing."""
        choices = [oracle(self.cost, kind.expected_tokens()) for _, kind in self.phases]
        return self._by_phase([choice.draft_lengths for choice in choices])

    def stale(self) -> Policy:
        """The start's table in the first phase; later the one tuned for the phase before."""
        later = [self.tuned_lengths(kind) for _, kind in self.phases[:-1]]
        return self._by_phase([self.start_lengths, *later])

    def engine(self, policy: Policy) -> Engine:
        """The engine, ready to run; the same seed meets every policy with the same requests."""
        kinds = list(dict.fromkeys(kind for _, kind in self.phases))
        traffic = tuple(
            Traffic(self.prompts, self.outputs, kinds.index(kind), from_s)
            for from_s, kind in self.phases
        )
        return Engine(
            self.cost,
            models(kinds),
            Workload(self.load, traffic, switch_in_flight=self.in_flight),
            policy,
            self.settings,
            np.random.default_rng(self.seed),
        )

    def kind_at(self, at_s: float) -> Kind:
        return [kind for from_s, kind in self.phases if from_s <= at_s][-1]

    def expected_tokens_at(self, at_s: float) -> FloatArray:
        return self.kind_at(at_s).expected_tokens()

    def _by_phase(self, tables: Sequence[Sequence[int]]) -> Policy:
        starts = [from_s for from_s, _ in self.phases]
        parts = [(s, TablePolicy(table)) for s, table in zip(starts, tables, strict=True)]
        return parts[0][1] if len(parts) == 1 else ScheduledPolicy(parts)
