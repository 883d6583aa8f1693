"""The scenarios by name. Each is a function of the true step times, a load and a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tabletune.core.words import FloatArray
from tabletune.simulate.loads import ClosedLoop, Load, OpenLoop
from tabletune.simulate.scenarios.kinds import CHAT, CODE, FOREIGN, MATH, Kind
from tabletune.simulate.scenarios.scenario import Scenario, Window
from tabletune.simulate.scenarios.tables import (
    GridStepTimes,
    believed,
    random_lengths,
    tuned_lengths,
    wrong_cells,
)
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import Noise, StepCost, random_factors

SETTLE_S = 20.0
"""A controller has so long to adapt before it is scored."""

SCORED_S = 40.0

CLOSED = (4, 16, 32, 64, 128)

UNQUIET_SHARE = (1.0, 0.95, 0.9, 0.8, 0.6)
"""How much of the host's drift a step feels, by draft length: those with many wait for the GPU."""


def serving_cost(step_time_s: FloatArray) -> StepCost:
    """A true engine of these step times, float64[B+1, K+1], with prompts, context and noise.

    The marginal costs are estimates for a 4B model on an H200: 8 GFLOP a prompt token at about
    500 TFLOP/s, 147 KB of keys and values a token of context at 4.8 TB/s, and a millisecond for
    a step that runs without its full graph.
    """
    return StepCost(
        step_time_s,
        prefill_s_per_tok=1.6e-5,
        prefill_step_s=1e-3,
        context_s_per_tok=3e-8,
        profiled_context_tok=384,
        noise=Noise(0.03, outlier_rate=0.0005),
    )


def loads(max_num_seqs: int) -> dict[str, Load]:
    """Closed loops of 4 to 128 open requests, Poisson arrivals, and bursts of them."""
    known: dict[str, Load] = {f"closed {n}": ClosedLoop(n) for n in CLOSED if n <= max_num_seqs}
    known["poisson"] = OpenLoop(40.0)
    known["bursty"] = OpenLoop(10.0, burst_per_s=100.0, on_s=2.0, off_s=4.0)
    return known


def steady(
    cost: StepCost, load: Load, seed: int, kind: Kind = CODE, duration_s: float = 620.0
) -> Scenario:
    """The tuned table, a right profile, a right prior, and nothing that changes."""
    window = Window("steady", SETTLE_S, duration_s)
    return _scenario("steady", cost, load, seed, ((0.0, kind),), (window,))


def mistuned(cost: StepCost, load: Load, seed: int, kind: Kind = CODE) -> Scenario:
    """A random table was promoted; profile and prior are right."""
    rng = np.random.default_rng([seed, 1])
    start = random_lengths(cost.max_batch_size, cost.max_draft_length, rng)
    window = Window("mistuned", SETTLE_S, SETTLE_S + SCORED_S)
    return _scenario("mistuned", cost, load, seed, ((0.0, kind),), (window,), start=start)


def switching(
    cost: StepCost,
    load: Load,
    seed: int,
    kinds: Sequence[Kind] = (CODE, CHAT, MATH),
    name: str = "switch",
    in_flight: bool = False,
) -> Scenario:
    """The traffic's kind changes; table and prior are those of the first kind."""
    lasts_s = SETTLE_S + SCORED_S
    phases = tuple((i * lasts_s, kind) for i, kind in enumerate(kinds))
    windows = tuple(
        Window(f"{kinds[i].name} to {kind.name}", from_s + SETTLE_S, from_s + lasts_s)
        for i, (from_s, kind) in enumerate(phases[1:])
    )
    return _scenario(name, cost, load, seed, phases, windows, in_flight=in_flight)


def useless_drafter(cost: StepCost, load: Load, seed: int) -> Scenario:
    """Traffic on which the drafter is worth nothing, and back: to K=0, and away from it."""
    return switching(cost, load, seed, (CODE, FOREIGN, CODE), "useless drafter")


def misprofiled(
    cost: StepCost,
    load: Load,
    seed: int,
    kind: Kind = CODE,
    *,
    error: float = 0.4,
    share: float = 0.3,
    blocks: bool = False,
) -> Scenario:
    """On a random share of its cells the profile is wrong by up to +-error, and a table was
    built from it. The prior is right.

    blocks: wrong in blocks of 8 batch sizes with sharp edges instead of at the profile's cells:
        next to a wrong batch size its neighbour is right.
    """
    rng = np.random.default_rng([seed, 2])
    shape = (cost.step_time_s.shape[0], cost.step_time_s.shape[1])
    factors = (random_factors if blocks else wrong_cells)(shape, share, error, rng)
    name = "mis-profiled blocks" if blocks else "mis-profiled"
    window = Window(name, SETTLE_S, SETTLE_S + SCORED_S)
    wrong = believed(cost, factors)
    return _scenario(name, cost, load, seed, ((0.0, kind),), (window,), surface=wrong)


def unquiet_host(
    cost: StepCost, load: Load, seed: int, kind: Kind = CODE, *, error: float = 0.05
) -> Scenario:
    """A host that drifts while it was profiled and while it serves, and whose steps with prompts
    are slow: every cell of the profile is off by up to +-error, stretches of steps lie 8 % apart,
    and a step that holds a prompt takes 13 ms longer, as on an H200
    (bench/results/h200_vllm0.32.0_qwen3-4b_eagle3_policies.json).
    """
    rng = np.random.default_rng([seed, 7])
    shape = (cost.step_time_s.shape[0], cost.step_time_s.shape[1])
    host = Noise(0.04, 0.0005, host_sd=0.08, host_steps=100.0, host_share=UNQUIET_SHARE)
    unquiet = replace(cost, prefill_step_s=13e-3, noise=host)
    wrong = believed(unquiet, wrong_cells(shape, 1.0, error, rng))
    window = Window("unquiet host", SETTLE_S, SETTLE_S + 3 * SCORED_S)
    return _scenario("unquiet host", unquiet, load, seed, ((0.0, kind),), (window,), surface=wrong)


def _scenario(
    name: str,
    cost: StepCost,
    load: Load,
    seed: int,
    phases: tuple[tuple[float, Kind], ...],
    windows: tuple[Window, ...],
    *,
    start: tuple[int, ...] | None = None,
    surface: GridStepTimes | None = None,
    in_flight: bool = False,
) -> Scenario:
    settings = EngineSettings(max_num_seqs=cost.max_batch_size)
    surface = surface or GridStepTimes(cost.step_time_s)
    first = phases[0][1]
    return Scenario(
        name=name,
        seed=seed,
        load=load,
        cost=cost,
        phases=phases,
        surface=surface,
        prior=first.counts(),
        start_lengths=start
        or tuned_lengths(surface, first.expected_tokens(), settings.max_num_seqs),
        windows=windows,
        in_flight=in_flight,
        settings=settings,
    )
