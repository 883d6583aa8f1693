"""The simulator against a real engine: throughput of closed loops at several loads.

    python -m bench.simulator_check --engine PYTHON --model FOLDER \
        --out bench/results/FILE.json [--loads 1,4,8] [--lengths 0,3] [--table 1-4:3,5-8:0] \
        [--rounds 2] [--window-s 9] [-- ENGINE ARGS]

One boot, with the n-gram drafter and without prefix caching. First half of a step-time profile;
then, in turn and in rounds, every fixed length and a table at every load, in windows read from
the engine's own steps; then the other half of the profile. The simulator is told

- the profile's step times (mixed steps: what a step of K takes with the proposals as they come);
- survival and proposal rate, counted in the very windows: text repeats itself more in one
  window than in another, and how the engine turns acceptance into throughput is the question;
- what prompts cost, and the client's pause between two requests, from windows of their own.

error: simulated over measured throughput, less 1. error_own_times: the same with the step times
and the cost of prompts of the windows' own steps, which tells a profile that does not hold (a
machine that others use) from a simulator that does not.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.profile_methods import facts_of
from bench.simulator_model import (
    RealEngine,
    counts_of,
    overheads,
    own_overheads,
    own_times_s,
    simulate_tok_s,
    summary,
    throughput_tok_s,
)
from tabletune.commands.console import TerminalProgress
from tabletune.commands.options import numbers
from tabletune.measure.clock import SystemClock
from tabletune.measure.load import ClosedLoop, LoadRequest
from tabletune.measure.profile_in_engine import BatchProfiler, CellSamples
from tabletune.measure.rounds import staggered
from tabletune.measure.steps import StepBatch, StepReader, concatenate
from tabletune.pipeline.identify import identify_target
from tabletune.pipeline.plans import choose_plans
from tabletune.pipeline.profilers import OPTIONS
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.requests import natural_requests, sample_prompts
from tabletune.pipeline.session import EngineSession, LiveEngine
from tabletune.simulate.policy import FixedPolicy, TablePolicy
from tabletune.simulate.step_cost import cell_times

TARGET = 0.05
OUTPUT_TOK = 96
RAMP_TOK = 12
Rows = list[list[int]]


class Check:
    """One engine, what was measured on it so far, and what the simulator makes of it."""

    def __init__(
        self,
        live: LiveEngine,
        request: RunRequest,
        loads: Sequence[int],
        table: Rows,
        window_s: float,
        async_scheduling: bool,
    ) -> None:
        self.live, self.loads, self.table = live, loads, table
        self.lengths, self.max_num_seqs = request.all_lengths, request.max_num_seqs
        self.window_s, self.async_scheduling = window_s, async_scheduling
        self.progress = TerminalProgress()
        natural = natural_requests(sample_prompts(request), live, self.progress, OUTPUT_TOK)
        # The samples come in groups of like prompts: mixed, so that no window has one group only.
        order = np.random.default_rng(1).permutation(len(natural)).tolist()
        natural = [natural[i] for i in order]
        # Every request has the same output, so that the simulator needs no distribution of it.
        self.requests = [LoadRequest(r.prompt, OUTPUT_TOK, {"ignore_eos": True}) for r in natural]
        self.prompts_tok = tuple(len(r.prompt) for r in natural if isinstance(r.prompt, list))
        self.cells: dict[tuple[int, int], CellSamples] = {}
        self.windows: dict[tuple[str, int], list[StepBatch]] = {}
        self.sent_tok: dict[tuple[str, int], list[int]] = {}  # prompts that began in the windows
        self.load_average: list[float] = []

    def profile(self, share: float) -> None:
        """Step times of the loads' batch sizes; `share` of all samples are there afterwards."""
        options = OPTIONS["mixed"]
        most = round(options.max_samples * share)
        options = dataclasses.replace(options, min_samples=most, max_samples=most)
        profiler = BatchProfiler(
            self.live.api,
            self.live.model.name,
            self.requests,
            float(np.mean(self.prompts_tok)),
            0.0,
            options,
            SystemClock(),
            self.progress,
        )
        sizes = sorted({1, 2, *self.loads, *(max(1, n // 2) for n in self.loads)})
        for batch_size in sizes:
            self.progress.say(f"profile, batch size {batch_size}")
            kept = {k: self.cells.get((batch_size, k), CellSamples()) for k in self.lengths}
            cells = profiler.measure(batch_size, self.lengths, kept)
            self.cells |= {(batch_size, k): cell for k, cell in cells.items()}

    def policies(self) -> dict[str, TablePolicy]:
        """What is run, as the simulator names it."""
        fixed: dict[str, TablePolicy] = {f"fixed {k}": FixedPolicy(k) for k in self.lengths}
        return fixed | {"table": TablePolicy.from_rows([(a, b, k) for a, b, k in self.table])}

    def window(self, name: str, load: int, number: int) -> None:
        """One window of a policy at a load."""
        if name == "table":
            self.live.api.swap_table(self.table)
        else:
            self.live.api.pin(int(name.removeprefix("fixed ")))
        steps, prompts_tok = self._steps(load, number)
        self.windows.setdefault((name, load), []).append(steps)
        self.sent_tok.setdefault((name, load), []).extend(prompts_tok)
        self.load_average.append(round(os.getloadavg()[0], 2))
        self.progress.say(f"{name}, {load} open: {throughput_tok_s(steps):.1f} tok/s")

    def _steps(self, load: int, number: int) -> tuple[StepBatch, list[int]]:
        stream = staggered(self.requests, load, number * 7 * load, len(self.requests) + load)
        reader = StepReader(self.live.api)
        address, model = self.live.api.address, self.live.model.name
        with ClosedLoop(address, model, stream, load) as loop:
            batches = [reader.read_new()]
            while sum(int(b.output_tok.sum()) for b in batches) < RAMP_TOK * load:
                time.sleep(0.05)
                batches.append(reader.read_new())
            time.sleep(self.window_s)
            batches.append(reader.read_new())
            if loop.done.is_set() or loop.counts.failed:
                raise RuntimeError(f"expected requests to run on, found {loop.counts}")
            began = stream[load : load + loop.counts.completed]
        steps = concatenate(batches)
        ramped = np.cumsum(steps.output_tok) >= RAMP_TOK * load
        time.sleep(0.3)  # the cancelled requests leave the engine
        return steps.select(ramped), [len(r.prompt) for r in began if isinstance(r.prompt, list)]

    def run(self, rounds: int) -> dict[str, Any]:
        """Everything, in turn; then the simulator's answers."""
        self.profile(0.5)
        rng = np.random.default_rng(0)
        for number in range(rounds):
            for load in self.loads:
                for name in rng.permutation(list(self.policies())).tolist():
                    self.window(name, load, number)
        self.live.api.pin(None)
        self.profile(1.0)
        return self.compare()

    def compare(self) -> dict[str, Any]:
        """Measured and simulated throughput of every window."""
        times = self._profiled_s()
        several = self.windows["fixed 0", max(self.loads)] + self.windows["fixed 0", 4]
        single = self.windows["fixed 0", 1]
        found = overheads(concatenate(several), concatenate(single), times)
        real = RealEngine(
            found, self.prompts_tok, OUTPUT_TOK, self.async_scheduling, self.max_num_seqs
        )
        longest = max(self.lengths)
        rows: list[dict[str, Any]] = []
        for (name, load), batches in sorted(self.windows.items(), key=lambda w: (w[0][1], w[0][0])):
            policy, counts = self.policies()[name], counts_of(batches, longest)
            rates = [throughput_tok_s(batch) for batch in batches]
            own = own_times_s(batches, longest, times)
            sent = tuple(self.sent_tok[name, load]) or self.prompts_tok
            told = dataclasses.replace(real, prompts_tok=sent)
            simulated = simulate_tok_s(told, times, counts, policy, load)
            seen = dataclasses.replace(told, overheads=own_overheads(batches, load, own, found))
            with_own = simulate_tok_s(seen, own, counts, policy, load)
            mean = float(np.mean(rates))
            rows.append(
                {
                    "policy": name,
                    "concurrency": load,
                    "measured_windows_tok_s": [round(r, 2) for r in rates],
                    "simulated_tok_s": round(simulated, 2),
                    "error": round(simulated / mean - 1, 4),
                    "error_own_times": round(with_own / mean - 1, 4),
                    "mean_prompt_tok": round(float(np.mean(sent)), 1),
                    "counts": {
                        "drafted_through": counts.drafted_through.tolist(),
                        "accepted_through": counts.accepted_through.tolist(),
                        "request_steps": counts.request_steps,
                    },
                }
            )
        return {
            "summary": summary(rows, TARGET),
            "rows": rows,
            "step_time_s": {
                f"batch size {b}, draft length {k}": round(float(times[b, k]), 5)
                for b, k in sorted(self.cells)
            },
            "overheads": dataclasses.asdict(found),
            "prompts_tok": {
                "mean": round(float(np.mean(self.prompts_tok)), 1),
                "count": len(self.prompts_tok),
            },
            "output_tok": OUTPUT_TOK,
            "async_scheduling": self.async_scheduling,
            "host_load_average": self.load_average,
        }

    def _profiled_s(self) -> np.ndarray:
        cells: dict[tuple[int, int], float] = {}
        for (b, k), samples in self.cells.items():
            estimate = samples.estimate("mixed", 0.0)
            if estimate is not None:
                cells[b, k] = estimate.step_time_s
        return cell_times(cells, self.max_num_seqs)


def rows_of(text: str) -> Rows:
    """ "1-4:3,5-8:0" as a table's rows."""
    rows: Rows = []
    for part in text.split(","):
        span, length = part.split(":")
        first, last = span.split("-")
        rows.append([int(first), int(last), int(length)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Check the simulator against a real engine.")
    parser.add_argument("--engine", type=pathlib.Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--method", default="ngram")
    parser.add_argument("--loads", default="1,4,8")
    parser.add_argument("--lengths", default="0,3")
    parser.add_argument("--table", default="1-4:3,5-8:0")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--window-s", type=float, default=9.0)
    parser.add_argument("--async-scheduling", action="store_true")
    parser.add_argument("--note", default="", help="conditions to keep in the result file")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("engine_args", nargs="*")
    options = parser.parse_args()
    loads = numbers("--loads", options.loads)
    lengths = numbers("--lengths", options.lengths)
    # For the facts of the result file, which profile_methods states in the same way.
    options.drafter, options.speculative = None, "{}"
    options.batch_sizes, options.reference_samples = options.loads, 0
    request = RunRequest(
        model=options.model,
        method=options.method,
        engine=str(options.engine),
        max_draft_length=max(lengths),
        max_num_seqs=max(loads),
        lengths=lengths,
        engine_args=(*options.engine_args, "--no-enable-prefix-caching"),
    )
    target = identify_target(request, options.engine)
    found = facts_of(target, options)
    found |= {
        "what": "closed-loop throughput of a real CPU engine against the simulator's",
        "command": "python -m bench.simulator_check --engine PYTHON --model "
        f"{pathlib.Path(options.model).name} --loads {options.loads} --lengths {options.lengths} "
        f"--table {options.table} --rounds {options.rounds} --window-s {options.window_s:g} -- "
        + " ".join(options.engine_args),
        "note": options.note,
        "reading": " ".join((__doc__ or "").split("\n\n")[2:][-1].split()),
    }
    fingerprint = target.fingerprint
    plan = choose_plans(request, fingerprint.device, fingerprint.engine, request.all_lengths)[0]
    progress = TerminalProgress()
    with (
        tempfile.TemporaryDirectory() as logs,
        EngineSession(
            request, target.python, target.platform, pathlib.Path(logs), progress
        ) as session,
    ):
        live = session.measuring(plan)
        check = Check(
            live,
            request,
            loads,
            rows_of(options.table),
            options.window_s,
            options.async_scheduling,
        )
        found |= check.run(options.rounds)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["summary"], indent=1))


if __name__ == "__main__":
    main()
