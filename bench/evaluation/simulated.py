"""A scenario's comparison in the simulator: the same policies, loads and figures, no engine.

Step times come from profiles that were recorded on one H200 (vLLM 0.32.0; Qwen3-4B and
Qwen3-30B-A3B shapes with an EAGLE-3 head), so only scenarios of those deployments can be
simulated. What prompts and context cost are estimates (tabletune/simulate/scenarios/named.py).
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
from functools import cache
from typing import Any

import numpy as np

from bench.controller_cases import PROFILE
from bench.evaluation import arms as arms_module
from bench.evaluation.arms import Arm, Known, expected_tokens_of, specs
from bench.evaluation.loads import gaps_s, is_open
from bench.evaluation.policy_specs import policy_of
from bench.evaluation.scenario import Closed, Jump, Poisson, Scenario, ScenarioError, Trace
from bench.evaluation.shares import summarise_load
from tabletune.core.controller.controller import Controller
from tabletune.core.controller.promoted import Promoted
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.survival import SurvivalCounts
from tabletune.records.evidence import surface_of
from tabletune.records.plan import Envelope
from tabletune.records.step_profile import Profile
from tabletune.simulate.acceptance import AcceptanceModel
from tabletune.simulate.controller_policy import ControllerPolicy
from tabletune.simulate.engine import Engine
from tabletune.simulate.lengths import FixedLength, ListedLength
from tabletune.simulate.loads import ClosedLoop, Load, OpenLoop
from tabletune.simulate.loads import Trace as ArrivalTrace
from tabletune.simulate.policy import Policy, TablePolicy
from tabletune.simulate.result import SimulationResult
from tabletune.simulate.scenarios.named import serving_cost
from tabletune.simulate.scenarios.tables import GridStepTimes, tuned_lengths
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import StepCost, step_times
from tabletune.simulate.workload import Traffic, Workload

SETTLE_S = 20.0
SCORED_S = 40.0
SEEDS = 4
#: Recorded profiles by target and drafter, each of 128 requests and draft lengths up to 4, and
#: seconds per token of context in the batch: of the target's keys and values.
RECORDED = {
    ("qwen3-4b", "eagle3-qwen3-4b"): (PROFILE, 3.0e-8),
    ("qwen3-30b-a3b", "eagle3-qwen3-30b-a3b"): (
        PROFILE.with_name("h200_vllm0.32.0_qwen3-30b-a3b_eagle3_profile.v1.json"),
        2.2e-8,
    ),
}
#: The simulator has no closed loop that jumps.
Simulable = Closed | Poisson | Trace
#: Request-steps that a measured prior has seen, about: 160 prompts.
PRIOR_STEPS = 3700.0


def can_simulate(scenario: Scenario) -> bool:
    """Whether step times of the scenario's deployment were recorded."""
    shape = (scenario.max_num_seqs, scenario.max_draft_length)
    recorded = (scenario.target, scenario.drafter) in RECORDED and scenario.replicas == 1
    return recorded and shape == (128, 4) and scenario.prompt_tok is None


@cache
def recorded_cost(target: str, drafter: str | None) -> StepCost:
    """The recorded H200's step times, up to 128 requests."""
    path, context_s_per_tok = RECORDED[target, drafter or ""]
    surface = surface_of(Profile.from_json(path.read_bytes()), None)
    cost = serving_cost(step_times(surface, 128))
    return dataclasses.replace(cost, context_s_per_tok=context_s_per_tok)


def simulate(scenario: Scenario, out: pathlib.Path, seeds: int = SEEDS) -> None:
    """Simulate every load under every traffic, and write the result file.

    Raises:
        ScenarioError: no step times of this deployment were recorded.
    """
    if not can_simulate(scenario) or not scenario.traffic:
        found = "no recorded step times for its deployment, or real acceptance"
        raise ScenarioError(out, found + ": it can only be run on an engine")
    loads: list[dict[str, Any]] = []
    for number, traffic in enumerate(scenario.traffic):
        switched = f", after a switch to {traffic.name}" if number else ""
        survival = traffic.survival
        before = scenario.traffic[0].survival if number else None
        for load in scenario.loads:
            if isinstance(load, Jump):
                continue
            compared = _arms(scenario, survival, before)
            rounds = [
                {arm.name: _cell(scenario, arm, load, survival, before, seed) for arm in compared}
                for seed in range(seeds)
            ]
            names = [arm.name for arm in compared]
            figures = summarise_load(rounds, names, is_open(load))
            del figures["windows"]  # they can be simulated again
            loads.append({"load": load.name + switched, "traffic": traffic.model_dump(), **figures})
    content = {
        "what": f"simulation: {scenario.what}",
        "reading": (
            "A simulation, not an engine. Windows of 40 simulated seconds after 20 to settle; a "
            "round is a seed, and in each seed every policy meets the same requests. Score and "
            "shares as in the engine's result files. What policies believe about step times is "
            "what is simulated, so the tuned table comes out as good as it can. After a switch, "
            "policies that learn have seen the first traffic for 60 s; the stale table is the "
            "first traffic's."
        ),
        "simulated": True,
        "measured": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "step_times": RECORDED[scenario.target, scenario.drafter or ""][0].name,
        "scenario": scenario.model_dump(mode="json"),
        "loads": loads,
        "loads_planned": len(loads),
        "left_out": [load.name for load in scenario.loads if isinstance(load, Jump)],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(content, indent=1) + "\n")


def known(scenario: Scenario, survival: tuple[float, ...]) -> Known:
    """The recorded deployment, of which everything is captured and qualified."""
    cost = recorded_cost(scenario.target, scenario.drafter)
    size, longest = cost.max_batch_size, cost.max_draft_length
    surface, tokens = GridStepTimes(cost.step_time_s), expected_tokens_of(survival)
    return Known(
        surface=surface,
        envelope=Envelope(allowed={str(k): ((1, size),) for k in range(longest + 1)}),
        lengths=tuple(range(longest + 1)),
        max_num_seqs=size,
        longest=longest,
        expected_tokens=tokens,
        tuned=(0, *tuned_lengths(surface, tokens, size)),
    )


def _arms(
    scenario: Scenario, survival: tuple[float, ...], before: tuple[float, ...] | None
) -> list[Arm]:
    stale = None if before is None else known(scenario, before).tuned
    return arms_module.arms(scenario, known(scenario, survival), stale)


def _cell(
    scenario: Scenario,
    arm: Arm,
    load: Simulable,
    survival: tuple[float, ...],
    before: tuple[float, ...] | None,
    seed: int,
) -> dict[str, Any]:
    """One policy at one load with one seed, as a cell of `summarise_load`."""
    cost = recorded_cost(scenario.target, scenario.drafter)
    kinds = [survival] if before is None else [before, survival]
    scored_from_s = SETTLE_S if before is None else 2 * SETTLE_S + SCORED_S
    end_s = scored_from_s + SCORED_S
    prompts, outputs = FixedLength(128), _outputs(scenario)
    starts = (0.0,) if before is None else (0.0, SETTLE_S + SCORED_S)
    traffic = tuple(Traffic(prompts, outputs, i, from_s) for i, from_s in enumerate(starts))
    engine = Engine(
        cost,
        [AcceptanceModel(values) for values in kinds],
        Workload(_load(load, end_s, seed), traffic, switch_in_flight=True),
        _policy(scenario, arm, kinds[0], seed),
        EngineSettings(max_num_seqs=scenario.max_num_seqs),
        np.random.default_rng(seed),
    )
    return _figures(engine.run(end_s), scored_from_s, end_s, survival)


def _policy(scenario: Scenario, arm: Arm, begins_with: tuple[float, ...], seed: int) -> Policy:
    if arm.how == "table":
        return TablePolicy(arm.lengths[1:])
    first = known(scenario, begins_with)
    if arm.how == "policy":
        return policy_of(specs(scenario, first, seed)[arm.name])
    starts = {
        "tuned table": first.tuned,
        "documented table": arms_module.documented(scenario, first),
        "longest": (0, *[first.longest] * first.max_num_seqs),
        "shortest": (0, *[0] * first.max_num_seqs),
    }[scenario.promoted]
    seen = np.array(begins_with) * PRIOR_STEPS
    promoted = Promoted(
        lengths=starts[1:],
        usable=first.surface.draft_lengths,
        surface=first.surface,
        prior=SurvivalCounts([PRIOR_STEPS] * seen.size, seen, PRIOR_STEPS),
        envelope=first.envelope.contains,
        max_num_seqs=first.max_num_seqs,
        max_draft_length=first.longest,
        version=f"{scenario.name}, simulated",
    )
    rng = np.random.default_rng([seed, 5])
    return ControllerPolicy(Controller(ControllerSettings(), promoted, starts[1:], rng))


def _outputs(scenario: Scenario) -> ListedLength:
    shortest, longest = scenario.output_tok
    return ListedLength(sorted({round(v) for v in np.linspace(shortest, longest, 65)}))


def _load(load: Simulable, end_s: float, seed: int) -> Load:
    if isinstance(load, Closed):
        return ClosedLoop(load.concurrency, ramp_s=8.0)
    if isinstance(load, Poisson):
        return OpenLoop(load.rate_per_s)
    gaps = gaps_s(load, int(2 * load.rate_per_s * end_s) + 100, seed)
    times = np.cumsum(gaps)
    times = times[times < end_s]
    return ArrivalTrace(times.tolist(), [128] * len(times), [256] * len(times))


def _figures(
    result: SimulationResult, from_s: float, end_s: float, survival: tuple[float, ...]
) -> dict[str, Any]:
    steps, tokens = result.steps, expected_tokens_of(survival)
    inside = (steps.start_s >= from_s) & (steps.start_s < end_s)
    times = steps.step_time_s[inside]
    decodes, batch = steps.decode_requests[inside], steps.batch_size[inside]
    verified, prefills = steps.verified_length[inside], batch - decodes
    expected = decodes * tokens[verified] + prefills
    calm = prefills == 0
    seconds, request_s = float(times.sum()), float((times * batch).sum())
    chosen, uses = np.unique(steps.draft_length[inside], return_counts=True)
    return {
        "boot": "simulated",
        "seconds": seconds,
        "output_tok": int(steps.tokens[inside].sum()),
        "prefill_steps": int((prefills > 0).sum()),
        "rate_tok_s": float(steps.tokens[inside].sum()) / seconds,
        "steadied_tok_s": float(expected.sum()) / seconds,
        "decode_tok_s": float(expected[calm].sum() / times[calm].sum()) if calm.any() else 0.0,
        "user_tok_s": float(expected.sum()) / request_s,
        "mean_batch_size": float(batch.mean()),
        "mean_step_time_s": float(times.mean()),
        "ungraphed_steps": 0,
        "steps": len(times),
        "lengths": {str(k): float(n / uses.sum()) for k, n in zip(chosen, uses, strict=True)},
    }
