"""The policies of a scenario as arms of a comparison: what is sent to the engine for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bench.evaluation import policy_specs
from bench.evaluation.policy_specs import Spec
from bench.evaluation.policy_table import usable_lengths
from bench.evaluation.scenario import Scenario
from tabletune.core.surface import StepTimes
from tabletune.core.words import FloatArray
from tabletune.records.plan import Envelope
from tabletune.records.table import table_from_dense
from tabletune.records.vllm_format import to_vllm
from tabletune.simulate.policy import Observation, Policy
from tabletune.simulate.rivals.acceptance_tiers import ONE_SLOT, SLOTS_BY_BATCH
from tabletune.simulate.rivals.documented_table import documented_table
from tabletune.simulate.rivals.length_schedule import LengthSchedulePolicy
from tabletune.simulate.scenarios.roster import PROFILED, SCHEDULE

AS_BUILT = "tuned table as built"
"""The tuned table before a validation corrected it, where one did."""

Lengths = tuple[int, ...]
"""A dense table: [b] for batch size b, index 0 unused."""


@dataclass(frozen=True)
class Arm:
    """One policy. lengths: of a table; empty for the others. learns: it has a state."""

    name: str
    how: Literal["table", "policy", "controller"]
    lengths: Lengths = ()

    @property
    def learns(self) -> bool:
        return self.how != "table"

    @property
    def body(self) -> dict[str, Any]:
        """For POST /tabletune/table."""
        if self.how == "policy":
            return {"policy": self.name}
        if self.how == "controller":
            return {"ranges": None}
        table = table_from_dense(list(self.lengths), max(1, *self.lengths))
        return {"ranges": to_vllm(table)}


@dataclass(frozen=True)
class Known:
    """What is known about one engine, from its workspace.

    surface: profiled step times. expected_tokens: float64[K_max+1] for the traffic at hand,
    true where acceptance is synthetic. tuned: the table that TableTune promotes for it. built: what
    it was before a validation corrected it; empty, or the same, where none did.
    """

    surface: StepTimes
    envelope: Envelope
    lengths: tuple[int, ...]
    max_num_seqs: int
    longest: int
    expected_tokens: FloatArray
    tuned: Lengths
    built: Lengths = ()

    def within(self, lengths: Sequence[int]) -> Lengths:
        """A dense table with every length that the envelope lacks made the next shorter one."""
        allowed = {k: [list(pair) for pair in v] for k, v in self.envelope.allowed.items()}
        usable = usable_lengths(allowed, self.max_num_seqs, self.longest)
        return (0, *(usable[b][lengths[b]] for b in range(1, self.max_num_seqs + 1)))

    def oracle(self) -> Lengths:
        """argmax of E(K)/T(b, K) by the true expected tokens and the profiled step times."""
        return (0, *(self._best(b) for b in range(1, self.max_num_seqs + 1)))

    def _best(self, b: int) -> int:
        usable = [
            k
            for k in self.surface.draft_lengths
            if self.envelope.contains(b, k) and self.surface.covered(b, k)
        ]
        return max(
            usable, key=lambda k: float(self.expected_tokens[k]) / self.surface.step_time_s(b, k)
        )


def expected_tokens_of(survival: Sequence[float]) -> FloatArray:
    """E(0) … E(K) of a known survival.

    >>> expected_tokens_of([0.5, 0.25]).tolist()
    [1.0, 1.5, 1.75]
    """
    return np.cumsum([1.0, *survival])


def tables(scenario: Scenario, known: Known) -> dict[str, Lengths]:
    """Every arm that is a table, by name, as it would be promoted: within the envelope."""
    size = known.max_num_seqs
    made: dict[str, Lengths] = {}
    if "fixed" in scenario.policies:
        made = {f"fixed {k}": (0, *[k] * size) for k in sorted({0, *known.lengths})}
    others: dict[str, Callable[[], Lengths]] = {
        "documented table": lambda: documented(scenario, known),
        "TensorRT-LLM-style": lambda: known.within(
            _asked(LengthSchedulePolicy(SCHEDULE), size, known.longest)
        ),
        "tuned table": lambda: known.tuned,
        "oracle table": known.oracle,
    }
    if known.built not in ((), known.tuned):
        made[AS_BUILT] = known.built
    return made | {name: make() for name, make in others.items() if name in scenario.policies}


def documented(scenario: Scenario, known: Known) -> Lengths:
    """vLLM's documented table, within the envelope."""
    table = documented_table(scenario.documented, known.longest)
    return known.within(_asked(table, known.max_num_seqs))


def specs(scenario: Scenario, known: Known, seed: int = 3) -> dict[str, Spec]:
    """Every arm that decides in each step, by name; what each believes is the profile."""
    cells = {
        (b, k): known.surface.step_time_s(b, k)
        for b in PROFILED
        for k in known.surface.draft_lengths
        if known.surface.covered(b, k)
    }
    every: dict[str, Spec] = {
        "SGLang-style, one slot": policy_specs.tiers(ONE_SLOT, known.longest),
        "SGLang-style, slots": policy_specs.tiers(SLOTS_BY_BATCH, known.longest),
        "TurboSpec-style": policy_specs.fitted_goodput(cells, known.longest),
        "Nightjar-style": policy_specs.bandit(known.longest, seed),
    }
    return {name: spec for name, spec in every.items() if name in scenario.policies}


def arms(scenario: Scenario, known: Known, stale: Lengths | None = None) -> list[Arm]:
    """All arms. stale: the table of the traffic before, after a switch."""
    found = [Arm(name, "table", lengths) for name, lengths in tables(scenario, known).items()]
    if stale is not None:
        found.append(Arm("stale table", "table", stale))
    found += [Arm(name, "policy") for name in specs(scenario, known)]
    if "controller" in scenario.policies:
        found.append(Arm("controller", "controller"))
    return found


def _asked(policy: Policy, size: int, longest: int | None = None) -> Lengths:
    """A stateless policy's answers as a dense table."""
    answers = (policy.draft_length(b, Observation()) for b in range(1, size + 1))
    return (0, *(k if longest is None else min(k, longest) for k in answers))
