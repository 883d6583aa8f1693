"""Whether a draft length's step takes as long in a profile as it does in serving.

    python -m bench.profile_conditions --engine PYTHON --model FOLDER --method eagle3 \
        --drafter FOLDER --out bench/results/FILE.json [--batch-sizes 128,32] \
        [--lengths 0,1,2,3,4] [--rounds 3] [--samples 96] [--output-tok 512] [-- ENGINE ARGS]

One engine is booted, with the plugin. At each batch size, round after round, the same cells are
measured
    in_turn       as a profile does: the engine walks through all lengths in short blocks;
    alone         one length after the other, each for all its steps;
    with_prompts  one length after the other, under requests of so many output tokens that end and
                  are replaced, as in serving: the steps away from prompts are counted.
What a GPU's clock, or a host that is behind, does to one length depends on what else runs: in a
profile the mean of all lengths, in serving one length and the prompts. Requests grow while they
are measured; step times are stated at one context by one slope per length (core/context.py). The
context of with_prompts is known in the mean only. That is for drafters that do the same in every
step: with n-gram drafts the conditions see other stretches of the texts, and compare only where as
many tokens were scheduled at like contexts. Beside the step times: the GPU's clock and power
as nvidia-smi saw them meanwhile, where there is one.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.command_line import told_of_this
from bench.evaluation.gpu_watch import GpuWatch
from bench.one_boot import add_engine_options, on_one_boot, target_facts
from tabletune.commands.console import TerminalProgress
from tabletune.commands.options import numbers
from tabletune.core.context import CellKey, at_context, request_slopes
from tabletune.durable_file import write_durably
from tabletune.measure.clock import SystemClock
from tabletune.measure.load import ClosedLoop, LoadRequest
from tabletune.measure.profile_in_engine import (
    BatchProfiler,
    CellSamples,
    ProfileOptions,
    StepKind,
    counted_steps,
)
from tabletune.measure.rounds import staggered
from tabletune.measure.steps import StepReader, concatenate
from tabletune.pipeline.identify import Target
from tabletune.pipeline.profilers import REFERENCE_OUTPUT_TOK
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.requests import sample_prompts, step_time_requests
from tabletune.pipeline.session import LiveEngine

IN_TURN, ALONE, WITH_PROMPTS = CONDITIONS = ("in_turn", "alone", "with_prompts")
#: A condition is left after so long, with the steps that it has.
LONGEST_S = 20.0
#: One round's samples of all cells.
Cells = dict[CellKey, CellSamples]


class Conditions:
    """Measures cells under every condition, and keeps their samples by round."""

    def __init__(
        self, request: RunRequest, live: LiveEngine, gpu: str, samples: int, output_tok: int
    ) -> None:
        self._live, self._gpu, self._samples = live, gpu, samples
        self._kind: StepKind = "mixed" if request.step_kind == "mixed" else "constant"
        self._clock, self._progress = SystemClock(), TerminalProgress()
        prompts = sample_prompts(request)
        requests, self._prompt_tok = step_time_requests(request, prompts, live, self._progress)
        self.reference_tok = self._prompt_tok + min(
            REFERENCE_OUTPUT_TOK, requests[0].max_tokens / 2
        )
        self._profiler = BatchProfiler(
            live.api,
            live.model.name,
            requests,
            self._prompt_tok,
            self.reference_tok,
            ProfileOptions(
                self._kind, min_samples=samples, max_samples=samples, cell_budget_s=LONGEST_S
            ),
            self._clock,
            self._progress,
        )
        self._ending = [
            LoadRequest(r.prompt, min(output_tok, r.max_tokens), r.extra) for r in requests
        ]
        self.rounds: dict[str, list[Cells]] = defaultdict(list)
        self.gpu: dict[str, list[dict[str, float]]] = defaultdict(list)

    def measure(self, batch_size: int, lengths: Sequence[int], backwards: bool) -> None:
        """One round of all conditions; `backwards`: the last of them first."""
        for condition in CONDITIONS[:: -1 if backwards else 1]:
            cells: Cells = {}
            for group in [lengths] if condition == IN_TURN else [(k,) for k in lengths]:
                with GpuWatch(self._gpu) as gpu:
                    found = self._cells(condition, batch_size, group)
                cells |= {(batch_size, k): cell for k, cell in found.items()}
                name = f"{condition}, batch size {batch_size}, K = {', '.join(map(str, group))}"
                if gpu.found:
                    self.gpu[name].append(gpu.found)
            self.rounds[condition].append(cells)
            self._progress.say(f"batch size {batch_size}, {condition}: done")

    def _cells(
        self, condition: str, batch_size: int, lengths: Sequence[int]
    ) -> dict[int, CellSamples]:
        if condition == WITH_PROMPTS:
            (length,) = lengths
            return {length: self._with_prompts(batch_size, length)}
        return self._profiler.measure(batch_size, lengths)

    def _with_prompts(self, batch_size: int, length: int) -> CellSamples:
        api, cell = self._live.api, CellSamples()
        # Half of an output lies behind a request in the mean.
        context_tok = self._prompt_tok + float(np.mean([r.max_tokens for r in self._ending])) / 2
        stream = staggered(self._ending, batch_size, 0, 64 * batch_size)
        api.pin(length)
        try:
            reader = StepReader(api)
            seen = [reader.read_new()]
            give_up_s = self._clock.now_s() + LONGEST_S
            with ClosedLoop(api.address, self._live.model.name, stream, batch_size) as load:
                while len(cell.samples_s) < self._samples and self._clock.now_s() < give_up_s:
                    if load.done.is_set():
                        break
                    self._clock.sleep_s(0.1)
                    seen.append(reader.read_new())
                    steps, cell = concatenate(seen), CellSamples()
                    counted = counted_steps(steps, batch_size, length, self._kind)
                    cell.add(steps, counted, np.full(len(steps), context_tok))
        finally:
            api.pin(None)
        return cell

    def result(self) -> list[dict[str, Any]]:
        """Of each cell, by condition: median step time of all rounds and of each, in ms, and the
        tokens scheduled in the mean: with n-gram drafts they depend on the text."""
        known = [*self.rounds[IN_TURN], *self.rounds[ALONE]]
        slope = request_slopes(_pooled(known))
        keys = sorted({key for cells in self.rounds[IN_TURN] for key in cells})
        return [self._row(key, slope(key[1]) * key[0]) for key in keys]

    def _row(self, key: CellKey, slope_s_per_tok: float) -> dict[str, Any]:
        row: dict[str, Any] = {"batch_size": key[0], "draft_length": key[1]}
        for condition in CONDITIONS:
            rounds = [cells[key] for cells in self.rounds[condition] if key in cells]
            levelled = [
                at_context(one.samples_s, one.context_tok, self.reference_tok, slope_s_per_tok)
                for one in rounds
                if one.samples_s
            ]
            scheduled = [tok for one in rounds for tok in one.scheduled_tok]
            if levelled:
                row[condition] = {
                    "step_ms": round(1e3 * float(np.median(np.concatenate(levelled))), 3),
                    "by_round_ms": [round(1e3 * float(np.median(one)), 3) for one in levelled],
                    "steps": sum(map(len, levelled)),
                    "scheduled_tok": round(float(np.mean(scheduled)), 2),
                }
        return row


def _pooled(rounds: Sequence[Cells]) -> dict[CellKey, tuple[list[float], list[float]]]:
    pooled: dict[CellKey, tuple[list[float], list[float]]] = {}
    for cells in rounds:
        for key, cell in cells.items():
            samples, context = pooled.setdefault(key, ([], []))
            samples += cell.samples_s
            context += cell.context_tok
    return pooled


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile_conditions", description=(__doc__ or "").split("\n")[0]
    )
    add_engine_options(parser, "eagle3")
    parser.add_argument("--batch-sizes", default="128,32")
    parser.add_argument("--lengths", default="0,1,2,3,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=96, help="steps of a cell in each round")
    parser.add_argument("--output-tok", type=int, default=512, help="of with_prompts")
    return parser


def on_engine(
    live: LiveEngine, request: RunRequest, target: Target, options: argparse.Namespace
) -> None:
    """Measure on an engine that runs, and write the result after each round."""
    lengths, gpu = numbers("--lengths", options.lengths), next(iter(target.gpu_uuids), "0")
    conditions = Conditions(request, live, gpu, options.samples, options.output_tok)
    found: dict[str, Any] = {
        "what": "step times of draft lengths in turn, alone, and with prompts between",
        "command": told_of_this(),
        "measured_at": SystemClock().utc(),
        **target_facts(target, options.model),
        "reference_context_tok": conditions.reference_tok,
    }
    for number in range(options.rounds):
        for batch_size in numbers("--batch-sizes", options.batch_sizes):
            conditions.measure(batch_size, lengths, backwards=bool(number % 2))
        found |= {"cells": conditions.result(), "gpu": dict(conditions.gpu)}
        write_durably(options.out, (json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    on_one_boot(parser().parse_args(), on_engine)
