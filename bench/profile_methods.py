"""Compares the two profiling methods on one engine: how long they take, how far they are off.

    python -m bench.profile_methods --engine PYTHON --model FOLDER --method ngram \
        --out bench/results/FILE.json [--batch-sizes 1,2,4,8,16] [--lengths 0,2,4] \
        [--rounds 3] [--reference-samples 288] [-- ENGINE ARGS]

One engine is booted, with the plugin. At each batch size, round after round, the same cells are
measured by
    in_engine  the in-engine method as a run uses it: adaptive, until each cell is tight;
    client     the paper's method: requests for 65 and for 1 output tokens, median of three;
in alternating order, each from nothing. Before, between and after them runs a part of
    reference  the in-engine method with a fixed, large number of steps, all parts together.
So each method is off by as much as one run of it would be, while drift of the machine is spread
over the reference. All send the same prompts. A fourth column, client_by_engine_steps, takes the
client's durations over the number of steps that the engine counted, instead of the mean number
of steps of a request.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shlex
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from bench.one_boot import add_engine_options, on_one_boot, target_facts
from bench.profile_compare import CellKey, Measured, by_engine_steps, compare, reference_cells
from tabletune.commands.console import TerminalProgress
from tabletune.commands.options import numbers
from tabletune.measure.clock import SystemClock
from tabletune.measure.profile_client import LONG_TOK, REPEATS, ClientProfiler
from tabletune.measure.profile_in_engine import BatchProfiler, CellSamples, ProfileOptions, StepKind
from tabletune.pipeline.identify import Target
from tabletune.pipeline.profilers import OPTIONS, REFERENCE_OUTPUT_TOK
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.requests import sample_prompts, step_time_requests
from tabletune.pipeline.session import LiveEngine

READING = (
    "All methods send the same prompts on the same engine. The in-engine method keeps requests "
    "running for up to {long} output tokens and counts steps as they happen under that text; "
    "the client's requests end after {client} tokens, whatever the text. The reference is the "
    "in-engine method with more steps, so it cannot show what is wrong with both. "
    "How far its two halves lie apart is the noise in every error here. "
    "relative_error is signed; median, root mean square and largest are over all rounds and cells."
)


class PageLog:
    """The engine's metrics pages as the client read them."""

    def __init__(self, live: LiveEngine) -> None:
        self._api, self.address = live.api, live.api.address
        self.pages: list[str] = []

    def metrics_text(self) -> str:
        page = self._api.metrics_text()
        self.pages.append(page)
        return page


class Comparison:
    """Measures the same cells by every method, and keeps samples and wall times."""

    def __init__(
        self, request: RunRequest, live: LiveEngine, rounds: int, reference_samples: int
    ) -> None:
        clock, progress = SystemClock(), TerminalProgress()
        self.progress = progress
        requests, prompt_tok = step_time_requests(request, sample_prompts(request), live, progress)
        self.longest_tok = max(r.max_tokens for r in requests)
        kind: StepKind = "mixed" if request.step_kind == "mixed" else "constant"
        self.kind: StepKind = kind
        reference_tok = prompt_tok + min(REFERENCE_OUTPUT_TOK, requests[0].max_tokens / 2)

        def in_engine(options: ProfileOptions) -> BatchProfiler:
            return BatchProfiler(
                live.api,
                live.model.name,
                requests,
                prompt_tok,
                reference_tok,
                options,
                clock,
                progress,
            )

        self._log = PageLog(live)
        self._client = ClientProfiler(
            self._log, live.model.name, requests, prompt_tok, live.api.pin, clock=clock
        )
        self._in_engine = in_engine(OPTIONS[kind])
        self._rounds, parts = rounds, 2 * rounds + 1
        self._reference = [
            in_engine(
                dataclasses.replace(
                    OPTIONS[kind], min_samples=most, max_samples=most, cell_budget_s=60.0
                )
            )
            for most in (reference_samples * (part + 1) // parts for part in range(parts))
        ]
        self._client_tok, self._reference_tok = prompt_tok + LONG_TOK / 2, reference_tok
        self._first_half: dict[CellKey, int] = {}
        self.load_average: dict[str, float] = {}
        self.wall_time_s: dict[str, float] = defaultdict(float)
        self._reference_cells: dict[CellKey, CellSamples] = {}
        #: By method: the cells of each round.
        self.cells: dict[str, list[dict[CellKey, CellSamples]]] = defaultdict(
            lambda: [{} for _ in range(rounds)]
        )

    def measure(self, batch_size: int, lengths: tuple[int, ...], client_first: bool) -> None:
        """All methods at one batch size, round after round."""
        self._refer(0, batch_size, lengths)
        for number in range(self._rounds):
            jobs: dict[str, Callable[[], dict[int, CellSamples]]] = {
                "in_engine": lambda: self._in_engine.measure(batch_size, lengths),
                "client": lambda number=number: self._by_client(number, batch_size, lengths),
            }
            order = list(jobs)[:: -1 if client_first ^ bool(number % 2) else 1]
            for part, name in enumerate(order, start=1):
                cells = self._timed(name, batch_size, jobs[name])
                self.cells[name][number] |= {(batch_size, k): c for k, c in cells.items()}
                self._refer(2 * number + part, batch_size, lengths)

    def _timed(
        self, method: str, batch_size: int, measure: Callable[[], dict[int, CellSamples]]
    ) -> dict[int, CellSamples]:
        begun_s = time.monotonic()
        cells = measure()
        took_s = time.monotonic() - begun_s
        self.wall_time_s[method] += took_s
        self.load_average[str(batch_size)] = round(os.getloadavg()[0], 2)
        self.progress.say(f"batch size {batch_size}, {method}: {took_s:.1f} s")
        return cells

    def _refer(self, part: int, batch_size: int, lengths: tuple[int, ...]) -> None:
        kept = {k: self._reference_cells.get((batch_size, k), CellSamples()) for k in lengths}
        profiler = self._reference[part]
        cells = self._timed(
            "reference", batch_size, lambda: profiler.measure(batch_size, lengths, kept)
        )
        self._reference_cells |= {(batch_size, k): c for k, c in cells.items()}
        if part == self._rounds:
            self._first_half |= {(batch_size, k): len(c.samples_s) for k, c in cells.items()}

    def _by_client(
        self, number: int, batch_size: int, lengths: tuple[int, ...]
    ) -> dict[int, CellSamples]:
        self._log.pages.clear()
        cells = self._client.measure(batch_size, lengths)
        reads = 2 + 4 * REPEATS
        by_steps = self.cells["client_by_engine_steps"][number]
        for place, (length, cell) in enumerate(cells.items()):
            pages = self._log.pages[place * reads : (place + 1) * reads]
            by_steps[batch_size, length] = by_engine_steps(pages, cell, batch_size)
        return cells

    def result(self) -> dict[str, Any]:
        """Errors and wall times of every method so far, as plain values."""
        reference = Measured(self.kind, self._reference_tok, self._reference_cells)
        read_as: dict[str, tuple[StepKind, float]] = {
            "in_engine": (self.kind, self._reference_tok),
            "client": ("constant", self._client_tok),
            "client_by_engine_steps": ("constant", self._client_tok),
        }
        compared = {
            name: compare([Measured(*how, cells) for cells in self.cells[name]], reference)
            for name, how in read_as.items()
        }
        inside, outside = compared["in_engine"], compared["client"]
        ratio = self.wall_time_s["in_engine"] / self.wall_time_s["client"]
        return {
            "wall_time_s": {name: round(s, 1) for name, s in self.wall_time_s.items()},
            "in_engine_time_over_client_time": round(ratio, 3),
            "target": {
                "time_at_most_a_quarter": ratio <= 0.25,
                **{
                    f"{name}_no_larger": inside[name] <= outside[name]
                    for name in ("median_error", "rms_error", "largest_error")
                },
            },
            "host_load_average_by_batch_size": self.load_average,
            "reference": reference_cells(reference, self._first_half),
            "methods": compared,
        }


def facts_of(target: Target, options: argparse.Namespace) -> dict[str, Any]:
    """What was measured, on what, and how to do it again."""
    command = [
        *("python", "-m", "bench.profile_methods", "--engine", "PYTHON"),
        *("--model", pathlib.Path(options.model).name, "--method", options.method),
        *(("--drafter", pathlib.Path(options.drafter).name) if options.drafter else ()),
        *("--speculative", options.speculative, "--batch-sizes", options.batch_sizes),
        *("--lengths", options.lengths, "--rounds", str(options.rounds)),
        *("--reference-samples", str(options.reference_samples)),
        *("--", *options.engine_args),
    ]
    return {
        "what": "step times by the in-engine and by the client method against a long reference",
        "command": shlex.join(command),
        "measured_at": SystemClock().utc(),
        **target_facts(target, options.model),
    }


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    parser = argparse.ArgumentParser(description="Compare the two profiling methods.")
    add_engine_options(parser, "ngram")
    parser.add_argument("--batch-sizes", default="1,2,4,8,16")
    parser.add_argument("--lengths", default="0,2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reference-samples", type=int, default=288)
    return parser


def on_engine(
    live: LiveEngine, request: RunRequest, target: Target, options: argparse.Namespace
) -> None:
    """Compare on an engine that runs, and write the result after each batch size."""
    batch_sizes = numbers("--batch-sizes", options.batch_sizes)
    lengths = numbers("--lengths", options.lengths)
    found = facts_of(target, options)
    comparison = Comparison(request, live, options.rounds, options.reference_samples)
    found["reading"] = READING.format(long=comparison.longest_tok, client=LONG_TOK)
    for number, batch_size in enumerate(batch_sizes):
        comparison.measure(batch_size, lengths, client_first=bool(number % 2))
        found |= comparison.result()
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({k: v for k, v in found.items() if k in ("wall_time_s", "target")}))


if __name__ == "__main__":
    on_one_boot(parser().parse_args(), on_engine)
