"""From what a real engine did to a simulated one: the arithmetic of simulator_check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tabletune.core.counts import SurvivalCounts
from tabletune.core.survival import proposal_rate, survival
from tabletune.core.words import Cell, FloatArray
from tabletune.measure.steps import StepBatch
from tabletune.simulate.acceptance import AcceptanceModel
from tabletune.simulate.engine import Engine
from tabletune.simulate.lengths import FixedLength, ListedLength
from tabletune.simulate.loads import ClosedLoop
from tabletune.simulate.policy import Policy
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import StepCost
from tabletune.simulate.workload import Traffic, Workload


@dataclass(frozen=True)
class Overheads:
    """What a step costs besides its cell, and what passes between two requests of a client.

    prefill_step_s, prefill_s_per_tok: as in `StepCost`. think_s: end of an answer to the
    arrival of the next request.
    """

    prefill_step_s: float
    prefill_s_per_tok: float
    think_s: float


def overheads(steps: StepBatch, single: StepBatch, times_s: FloatArray) -> Overheads:
    """From steps of a closed loop of several requests without drafts, and of one of a single
    request.

    times_s: float64[B+1, K+1], step time of decodes. Prefills cost what a step with them takes
    beyond its decodes: a least-squares line in their tokens. With a single request the engine
    idles between two: that gap, less the prefill's own step, is the client's.
    """
    decodes = steps.batch_size - steps.prefill_requests
    counted = (steps.prefill_requests > 0) & np.isfinite(steps.interval_s) & (decodes > 0)
    base = times_s[np.maximum(decodes, 1), np.maximum(steps.verified_length, 0)]
    prompt_tok = steps.scheduled_tok - decodes - steps.drafted_tok
    features = np.stack((np.ones(int(counted.sum())), prompt_tok[counted]), axis=1)
    extra = steps.interval_s[counted] - base[counted]
    line = np.linalg.lstsq(features, extra, rcond=None)[0] if counted.sum() >= 4 else [0.0, 0.0]
    per_step, per_tok = (max(float(c), 0.0) for c in line)
    first = np.flatnonzero(single.prefill_requests > 0)
    first = first[first > 0]
    tokens = single.scheduled_tok[first]
    gaps = single.time_s[first] - single.time_s[first - 1]
    own = times_s[1, 0] + per_step + per_tok * tokens
    think = float(np.median(gaps - own)) if first.size else 0.0
    return Overheads(per_step, per_tok, max(think, 0.0))


def own_overheads(
    batches: Sequence[StepBatch], clients: int, times_s: FloatArray, otherwise: Overheads
) -> Overheads:
    """The same from the very windows that are compared, where they have too few prefills for a
    line: with one client all of it is one pause; with more it is a cost per prompt token."""
    if clients == 1:
        gaps = [
            batch.time_s[i] - batch.time_s[i - 1] - times_s[1, 0]
            for batch in batches
            for i in np.flatnonzero(batch.prefill_requests > 0).tolist()
            if i > 0
        ]
        return Overheads(0.0, 0.0, max(float(np.mean(gaps)), 0.0)) if gaps else otherwise
    extra, tokens = 0.0, 0
    for batch in batches:
        decodes = batch.batch_size - batch.prefill_requests
        counted = (batch.prefill_requests > 0) & np.isfinite(batch.interval_s) & (decodes > 0)
        base = times_s[np.maximum(decodes, 1), np.maximum(batch.verified_length, 0)]
        extra += float((batch.interval_s - base)[counted].sum())
        tokens += int((batch.scheduled_tok - decodes - batch.drafted_tok)[counted].sum())
    if not tokens:
        return otherwise
    return Overheads(0.0, max(extra / tokens, 0.0), otherwise.think_s)


def throughput_tok_s(steps: StepBatch) -> float:
    """Output tokens per second between the ends of the first and the last step."""
    return float(steps.output_tok[1:].sum() / (steps.time_s[-1] - steps.time_s[0]))


def counts_of(batches: Sequence[StepBatch], longest: int) -> SurvivalCounts:
    """Drafted and accepted per position over the steps with a known, positive length."""
    total = SurvivalCounts.empty(longest)
    for batch in batches:
        known = batch.select((batch.verified_length > 0) & (batch.request_steps > 0))
        if len(known) == 0:
            continue
        reach = known.verified_length[:, None] >= np.arange(1, longest + 1)
        offered = (known.request_steps[:, None] * reach).sum(axis=0)
        drafted = np.minimum(known.drafted_through[:, :longest].sum(axis=0), offered)
        accepted = np.minimum(known.accepted_through[:, :longest].sum(axis=0), drafted)
        total += SurvivalCounts(drafted, accepted, float(known.request_steps.sum()), offered)
    return total


def own_times_s(
    batches: Sequence[StepBatch], longest: int, floor: FloatArray, least: int = 8
) -> FloatArray:
    """Mean step time by cell of the given steps themselves, float64[B+1, K+1]; `floor` where
    fewer than `least` were seen. Steps with prefills, or after an idle engine, do not count."""
    times = floor.copy()
    sums: dict[Cell, list[float]] = {}
    for batch in batches:
        steady = batch.select(
            (batch.prefill_requests == 0)
            & (batch.verified_length >= 0)
            & np.isfinite(batch.interval_s)
        )
        cells = zip(steady.batch_size.tolist(), steady.verified_length.tolist(), strict=True)
        for cell, seconds in zip(cells, steady.interval_s.tolist(), strict=True):
            sums.setdefault(cell, []).append(seconds)
    for (b, k), seconds in sums.items():
        if len(seconds) >= least and b < times.shape[0] and k <= longest:
            times[b, k] = float(np.mean(seconds))
    return times


@dataclass(frozen=True, eq=False)
class RealEngine:
    """What the simulator is told of the engine. prompts_tok: of the requests sent;
    output_tok: of every request."""

    overheads: Overheads
    prompts_tok: tuple[int, ...]
    output_tok: int
    async_scheduling: bool
    max_num_seqs: int


def simulate_tok_s(
    real: RealEngine,
    times_s: FloatArray,
    counts: SurvivalCounts,
    policy: Policy,
    clients: int,
    seeds: Sequence[int] = (1, 2, 3),
    seconds: float = 400.0,
) -> float:
    """Mean throughput of the simulated engine in a closed loop, after a tenth of the time."""
    cost = StepCost(
        times_s,
        prefill_s_per_tok=real.overheads.prefill_s_per_tok,
        prefill_step_s=real.overheads.prefill_step_s,
    )
    traffic = Traffic(ListedLength(real.prompts_tok), FixedLength(real.output_tok))
    acceptance = AcceptanceModel(survival(counts), proposal_rate=proposal_rate(counts))
    settings = EngineSettings(
        max_num_seqs=real.max_num_seqs, async_scheduling=real.async_scheduling
    )
    load = ClosedLoop(clients, think_s=real.overheads.think_s)
    rates: list[float] = []
    for seed in seeds:
        workload = Workload(load, (traffic,))
        rng = np.random.default_rng(seed)
        engine = Engine(cost, [acceptance], workload, policy, settings, rng)
        rates.append(engine.run(seconds).throughput_tok_s(seconds / 10))
    return float(np.mean(rates))


def summary(rows: Sequence[Mapping[str, Any]], target: float) -> dict[str, Any]:
    """Errors by load, and whether all of them are within the target: with the step times of the
    very windows, which is the simulator's own error, and with those of the profile, in which
    what the machine did in between is contained.

    rows: with "concurrency", "error" (from the profile) and "error_own_times".
    """
    found: dict[str, Any] = {}
    for load in sorted({row["concurrency"] for row in rows}):
        of_load = [row for row in rows if row["concurrency"] == load]
        errors = [row["error"] for row in of_load]
        found[f"{load} open requests"] = {
            "mean_error": round(float(np.mean(errors)), 4),
            "largest_error": round(float(np.max(np.abs(errors))), 4),
            "largest_error_with_own_step_times": round(
                float(np.max(np.abs([row["error_own_times"] for row in of_load]))), 4
            ),
        }
    worst = max(part["largest_error"] for part in found.values())
    own = max(part["largest_error_with_own_step_times"] for part in found.values())
    return found | {
        "target": target,
        "simulator_holds": own <= target,
        "largest_error_with_own_step_times": own,
        "profile_holds": worst <= target,
        "largest_error": worst,
    }
