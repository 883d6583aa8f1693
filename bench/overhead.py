"""What the plugin costs an engine.

    python -m bench.overhead --out bench/results/overhead.json [--steps 1000000]
    python -m bench.overhead --out bench/results/overhead.json \
        --engine PYTHON --model FOLDER [--pairs 12] [--logs FOLDER]
    python -m bench.overhead --out FILE --engine PYTHON --model FOLDER --method eagle3 \
        --drafter FOLDER --concurrency 64 --tokens 512 --again [--speculative JSON] -- ENGINE ARGS

Without an engine: the hot path, which is all that runs on the engine's own thread where a source
is followed. For each kind of step at 256 requests, a hooked scheduler against a plain one that
does nothing, step by step (the least of many repeats of each step, so that a busy machine does not
count; the spread is over steps). Then so many steps in a row: time and memory of the first and the
last 100,000, and what the background thread spends to complete each step's record. Then one turn
of that thread, in processor seconds: what it may take from the engine's thread while it holds the
interpreter.

With an engine and --take-out: one real engine that serves without a break, with the plugin in and
out in turn (bench/overhead_one_engine.py): what two engines differ by is no part of that.

With an engine: two real ones side by side, one as it comes and one with the plugin following a
store, learning and deciding in mode shadow (which swaps nothing, so that both do the same work),
loaded in turn in pairs of windows A B, B A, …; the ratio of their throughputs with a 95 % interval
over the pairs. Without --method: a small model on a processor, with the n-gram drafter. With
--again a third engine, without the plugin, takes its turns too: what two engines differ by.

What is there in the file of the other part is kept; of this part, until it is measured whole anew.
"""

import argparse
import json
import os
import pathlib
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bench.command_line import told
from bench.machine_facts import machine_facts
from bench.overhead_engines import LONGEST, Setting, cpu_setting, throughput
from bench.overhead_one_engine import one_engine
from bench.overhead_steps import KINDS, PlainScheduler, steps
from bench.parts_file import PartsFile
from tabletune.measure.probe import probe_engine
from tabletune.pipeline.request import RunRequest
from tabletune_vllm.live.start import MOST_PENDING
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam.hooks import attach
from tabletune_vllm.settings import Settings

BATCH = 256
LIMIT_US = 20.0
LIMIT_SHARE = 0.01
CPU_LOOP_TOK = 400


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--engine", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--logs", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--method", help="of the drafter; then the engine is not a small one's")
    parser.add_argument("--drafter")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--take-out", action="store_true", help="one engine, the plugin in and out")
    parser.add_argument("--window-s", type=float, default=3.0, help="with --take-out")
    parser.add_argument("--speculative", type=json.loads, default={})
    parser.add_argument("engine_args", nargs="*")
    options = parser.parse_args(arguments)
    parts = PartsFile(options.out)
    run: dict[str, Any] = {"command": told("bench.overhead", arguments), "machine": machine()}
    if options.engine is None:
        parts.keep("hot_path", run | hot_path(options.steps))
    else:
        run["engine"] = machine_facts(probe_engine(options.engine))
        run["limit_share"] = LIMIT_SHARE
        on = setting(options)
        if options.take_out:

            def so_far(found: dict[str, Any]) -> None:
                parts.keep_so_far("one_engine", run | found)

            found = one_engine(on, options.pairs, options.window_s, options.logs, so_far)
            parts.keep("one_engine", run | found)
        else:
            parts.keep("serving", run | throughput(on, options.pairs, options.logs))
    print(parts.text)
    return 0


def setting(options: argparse.Namespace) -> Setting:
    """The engines of the second part."""
    if options.method is None:
        if options.engine_args or options.speculative:
            raise SystemExit("engine arguments and --speculative need --method; found none")
        small = replace(cpu_setting(options.engine, options.model), again=options.again)
        # Without drafts: with an n-gram drafter the luck of the text would be most of the noise,
        # and a step is shortest so.
        return replace(small, tokens=CPU_LOOP_TOK, length=0) if options.take_out else small
    request = RunRequest(
        model=str(options.model),
        method=options.method,
        drafter=options.drafter,
        engine=str(options.engine),
        max_draft_length=LONGEST,
        max_num_seqs=options.concurrency,
        engine_args=tuple(options.engine_args),
        speculative_extra=options.speculative,
    )
    return Setting(request, tokens=options.tokens, again=options.again)


def machine() -> dict[str, object]:
    """Where this runs, and how busy it is beside."""
    names = [
        line.partition(":")[2].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_average_1_min": round(os.getloadavg()[0], 2),
    }


def hot_path(count: int) -> dict[str, object]:
    """All of the first part."""
    kinds = {kind: step_cost_us(kind) for kind in KINDS}
    silent = {kind: step_cost_us(kind, log_stats=False) for kind in KINDS}
    return {
        "batch_size": BATCH,
        "limit_us": LIMIT_US,
        "us_per_step": kinds,
        "us_per_step_without_statistics": silent,
        "many_steps": many_steps(count),
        "many_steps_without_statistics": many_steps(count, log_stats=False),
        "background_turn_ms": turn_ms(),
    }


def engine(batch: int, log_stats: bool) -> tuple[PlainScheduler, Runtime]:
    """A hooked scheduler, with records completed beside it as where a source is followed."""
    scheduler = PlainScheduler(batch)
    scheduler.log_stats = log_stats
    runtime = attach(scheduler, Settings(measure=True), "0.32.0")
    runtime.observer.most_pending = MOST_PENDING
    return scheduler, runtime


def step_cost_us(kind: str, log_stats: bool = True, repeats: int = 25) -> dict[str, float]:
    """The plugin's microseconds per step: hooked less plain."""
    sequence = steps(kind, BATCH, 200)
    plain = PlainScheduler(BATCH)
    plain.log_stats = log_stats
    hooked, runtime = engine(BATCH, log_stats)
    least = np.full((2, len(sequence)), np.inf)
    for _ in range(repeats):
        # The background thread's part, at its next turn.
        runtime.observer.settle()
        for row, scheduler in enumerate((plain, hooked)):
            for at, (output, model_output) in enumerate(sequence):
                begun = time.perf_counter()
                scheduler.dynamic_sd_lookup[BATCH]
                scheduler.update_from_output(output, model_output)
                elapsed = time.perf_counter() - begun
                least[row, at] = min(least[row, at], elapsed)
    if runtime.reason is not None:
        raise RuntimeError(runtime.reason)
    cost = (least[1] - least[0]) * 1e6
    low, middle, high = np.quantile(cost, (0.1, 0.5, 0.9)).round(2).tolist()
    return {"median": middle, "p10": low, "p90": high, "mean": round(float(cost.mean()), 2)}


def many_steps(
    count: int, window: int = 100_000, turn: int = 200, *, log_stats: bool = True
) -> dict[str, float]:
    """Whether time and memory stay what they are: the first and the last steps of many.

    turn: steps between two turns of the background thread. The times are those of hooked steps
    whole, with what the plain scheduler does.
    """
    sequence = [step for kind in KINDS for step in steps(kind, BATCH, 50)]
    scheduler, runtime = engine(BATCH, log_stats)
    window = min(window, count // 2)
    marks = {window: "first", count: "last"}
    figures: dict[str, float] = {"steps": count, "window": window}
    spent = completing = 0.0
    for number in range(1, count + 1):
        output, model_output = sequence[number % len(sequence)]
        begun = time.thread_time()
        scheduler.update_from_output(output, model_output)
        spent += time.thread_time() - begun
        if number % turn == 0:
            begun = time.thread_time()
            runtime.observer.settle()
            completing += time.thread_time() - begun
        if number in marks:
            name = marks[number]
            figures[f"{name}_us_per_step"] = round(spent / window * 1e6, 2)
            figures[f"{name}_resident_mib"] = round(resident_mib(), 1)
        if number == count - window:
            spent = 0.0
    figures["completing_us_per_step"] = round(completing / count * 1e6, 2)
    if runtime.reason is not None:
        raise RuntimeError(runtime.reason)
    return figures


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def turn_ms() -> dict[str, float]:
    """Processor milliseconds of one turn of the loop a second at 100 steps a second, in mode
    adapt; and of its longest piece between two moments at which the engine's thread may take over.
    What the thread does besides, telling back and publishing its status, is no part of it."""
    from bench.overhead_turn import adapting_loop, serve_a_second

    loop, scheduler, clock = adapting_loop(BATCH)
    spent: list[float] = []
    longest: list[float] = []
    for _ in range(60):
        at = serve_a_second(scheduler, clock)
        marks = [time.thread_time()]
        loop.breathe = partial(_mark, marks)
        loop.turn(at)
        _mark(marks)
        spent.append((marks[-1] - marks[0]) * 1e3)
        longest.append(float(np.diff(marks).max()) * 1e3)
    low, middle, high = np.quantile(spent, (0.1, 0.5, 0.9)).round(2).tolist()
    pieces = {"longest_piece": round(float(np.median(longest)), 2)}
    return {"median": middle, "p10": low, "p90": high, "turns": len(spent), **pieces}


def _mark(marks: list[float]) -> None:
    marks.append(time.thread_time())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
