"""What a capture plan is worth: one table under several capture settings, each a boot of its own.

    python -m bench.capture_worth --engine PYTHON --model FOLDER [--drafter FOLDER] \
        --table '[[1,48,4],[49,96,3],[97,128,2]]' --out FILE.json [--only …] [-- ENGINE ARGS]

The settings:
    vllm        FULL_DECODE_ONLY with the sizes that vLLM chooses by itself for this table; its own
                default mode can crash with several draft lengths (docs/capture-planning.md)
    planned     what TableTune boots with
    everything  the planned mode with every size up to the widest decode step, and those that are
                planned for steps in which prompts join

For each: the seconds of the boot, what is left for the KV cache, the graphs captured; and for each
load the throughput of the table and the times of steps without a prompt. Boots cannot take turns
window by window, so throughputs of two settings differ by what two boots differ by, too. Windows
of K = 0 stand beside them: where neither setting has steps without a graph in them, their ratio is
that difference. The result is written after each setting; one that is in the file already and was
measured whole stays as it is. Ends with 1 if a setting failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.command_line import told
from bench.evaluation.loads import open_load, spread_outputs
from bench.evaluation.scenario import Closed
from bench.evaluation.window import EmptyWindowError, away_from_prompts, score_of, window_of
from bench.machine_facts import machine_facts
from tabletune.commands.console import TerminalProgress
from tabletune.core.capture_defaults import default_capture_sizes
from tabletune.durable_file import write_durably
from tabletune.measure.clock import SystemClock
from tabletune.measure.engine_errors import EngineError
from tabletune.measure.engine_log import kv_cache_bytes
from tabletune.measure.load import LoadRequest
from tabletune.measure.probe import probe_engine
from tabletune.measure.steps import StepBatch, StepReader
from tabletune.pipeline.identify import identify_target
from tabletune.pipeline.plans import choose_plans
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.requests import output_room_tok, sample_prompts, step_time_requests
from tabletune.pipeline.session import ENGINE_TROUBLE, EngineSession, LiveEngine
from tabletune.records.fingerprint import DeviceFacts, EngineFacts
from tabletune.records.plan import CapturePlan
from tabletune.records.table import Table
from tabletune.records.vllm_format import from_vllm, to_vllm

#: Tokens in one step of vLLM at most, where its arguments do not say (config/scheduler.py).
BATCHED_TOK = 8192
OUTPUT_TOK = (512, 1536)
RAMP_S, SETTLE_S = 4.0, 0.4
OFF, TABLE = "no drafts", "table"
SETTINGS = ("vllm", "planned", "everything")


def settings(
    request: RunRequest, device: DeviceFacts, engine: EngineFacts, table: Table
) -> dict[str, CapturePlan]:
    """The capture plan of each setting; on a processor nothing is captured, and there is one."""
    planned = choose_plans(request, device, engine, request.all_lengths)[0]
    if device.platform == "cpu":
        return {"planned": planned}
    widest = {r.draft_length: r.last for r in table.ranges}
    sizes = default_capture_sizes(
        request.max_num_seqs, BATCHED_TOK, request.max_draft_length, widest
    )
    widest_step = request.max_num_seqs * (request.max_draft_length + 1)
    joining = {size for size in planned.capture_sizes if size > widest_step}
    every = tuple(sorted(joining | set(range(1, widest_step + 1))))

    def other(**changes: object) -> CapturePlan:
        return planned.model_copy(update={"graph_count": 0, **changes})

    return {
        "vllm": other(graph_mode="FULL_DECODE_ONLY", capture_sizes=sizes),
        "planned": planned,
        "everything": other(capture_sizes=every),
    }


@dataclass(frozen=True)
class Loading:
    """How an engine is loaded: open requests, rounds of windows, seconds of one.

    survival: where acceptance is synthetic. longest_tok: of an output, see `spread_outputs`.
    """

    loads: tuple[int, ...]
    rounds: int
    window_s: float
    survival: tuple[float, ...] | None
    longest_tok: int


def under_loads(
    live: LiveEngine,
    table: Table,
    requests: Sequence[LoadRequest],
    loading: Loading,
    found: list[dict[str, Any]],
) -> None:
    """The table and no drafts in turns, at each load, into `found`."""
    for concurrency in loading.loads:
        stream = spread_outputs(
            requests, OUTPUT_TOK, 4 * concurrency, concurrency, loading.longest_tok
        )
        seen: dict[str, list[StepBatch]] = {TABLE: [], OFF: []}
        load = Closed(concurrency=concurrency)
        with open_load(load, [live.api.address], live.model.name, stream):
            time.sleep(RAMP_S)
            for _ in range(loading.rounds):
                for name, windows in seen.items():
                    live.api.swap_table(to_vllm(table))
                    live.api.pin(0 if name == OFF else None)
                    time.sleep(SETTLE_S)
                    reader = StepReader(live.api)
                    time.sleep(loading.window_s)
                    windows.append(reader.read_new())
        live.api.pin(None)
        figures = {n: figures_of(n, windows, loading.survival) for n, windows in seen.items()}
        found.append({"concurrency": concurrency, **figures})


def figures_of(
    name: str, windows: Sequence[StepBatch], survival: tuple[float, ...] | None
) -> dict[str, Any]:
    """Throughput by window, without the luck of acceptance where survival is known, and what
    steps without a prompt take.

    Raises:
        EmptyWindowError: a window without steps.
    """
    told_of = [window_of(name, steps, survival) for steps in windows]
    plain_s = np.concatenate([_plain_s(steps) for steps in windows])
    return {
        "tok_s": [round(score_of(w.to_json(), open_load=False), 1) for w in told_of],
        "decode_tok_s": [round(w.decode_tok_s, 1) for w in told_of],
        "steps": sum(w.steps for w in told_of),
        "ungraphed_steps": sum(w.ungraphed_steps for w in told_of),
        "prefill_steps": sum(w.prefill_steps for w in told_of),
        "step_ms": {
            f"p{share}": round(float(np.percentile(plain_s, share)) * 1e3, 3)
            for share in (50, 90, 99, 100)
            if len(plain_s)
        },
    }


def _plain_s(steps: StepBatch) -> np.ndarray:
    """Seconds of the steps that neither hold a prompt nor come right before one, float64[n]."""
    plain = away_from_prompts(steps) & np.isfinite(steps.interval_s)
    plain[:1] = False
    return steps.interval_s[plain]


def try_setting(
    session: EngineSession,
    request: RunRequest,
    plan: CapturePlan,
    table: Table,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Boot under one plan and load the engine; how it ended, as plain values, with `failed` where
    it did, and what was measured until then."""
    entry: dict[str, Any] = {
        "graph_mode": plan.graph_mode,
        "capture_sizes": list(plan.capture_sizes),
        "loads": [],
    }
    try:
        _measure(session, request, plan, table, options, entry)
    except (*ENGINE_TROUBLE, EngineError, EmptyWindowError) as error:
        live = session.measuring_if_up()
        death = None if live is None else live.death("serving under load", SystemClock())
        entry["failed"] = f"{type(error).__name__}: {death or error}"[:2000]
    return entry


def _measure(
    session: EngineSession,
    request: RunRequest,
    plan: CapturePlan,
    table: Table,
    options: argparse.Namespace,
    entry: dict[str, Any],
) -> None:
    live = session.measuring(plan)
    captured = live.api.graphs()
    entry["boot_s"] = round(live.engine.boot_time_s, 1)
    entry["graphs"] = captured.get("counts", captured.get("reason"))
    entry["left_for_kv_cache_bytes"] = kv_cache_bytes(live.engine.log_path)
    requests, prompt_tok = step_time_requests(
        request, sample_prompts(request), live, session.progress
    )
    entry["prompt_tok"] = round(prompt_tok, 1)
    rates = request.speculative_extra.get("synthetic_acceptance_rates")
    loading = Loading(
        loads=tuple(int(word) for word in options.loads.split(",")),
        rounds=options.rounds,
        window_s=options.window_s,
        survival=tuple(rates) if request.synthetic and rates else None,
        longest_tok=output_room_tok(live, prompt_tok),
    )
    under_loads(live, table, requests, loading, entry["loads"])


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(words)
    only = options.only.split(",")
    if not set(only) <= set(SETTINGS):
        print(f"expected --only to name some of {SETTINGS}, found {only}", file=sys.stderr)
        return 1
    request = RunRequest(
        model=options.model,
        method=options.method,
        engine=str(options.engine),
        drafter=options.drafter,
        max_draft_length=options.max_draft_length,
        max_num_seqs=options.max_num_seqs,
        engine_args=tuple(options.engine_args),
        speculative_extra=json.loads(options.speculative),
    )
    table = from_vllm(json.loads(options.table), request.max_num_seqs, request.max_draft_length)
    target = identify_target(request, options.engine)
    found: dict[str, Any] = {
        "what": "one table under several capture settings, each in a boot of its own",
        "command": told("bench.capture_worth", words),
        "measured": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine_facts(probe_engine(options.engine)),
        "synthetic": "dummy weights, synthetic acceptance" if request.synthetic else "nothing",
        "table": to_vllm(table.table),
        "window_s": options.window_s,
        "settings": {},
    }
    measured: dict[str, Any] = found["settings"]
    if options.out.exists():
        before = json.loads(options.out.read_text())
        if {**before, "settings": {}, "command": "", "measured": ""} != {
            **found,
            "command": "",
            "measured": "",
        }:
            print(f"{options.out} is of something else: name another --out", file=sys.stderr)
            return 1
        measured |= {n: s for n, s in before["settings"].items() if "failed" not in s}
    with TerminalProgress() as progress:
        facts = target.fingerprint
        for name, plan in settings(request, facts.device, facts.engine, table.table).items():
            if name not in only or name in measured:
                continue
            logs = options.out.parent / "logs" / name
            logs.mkdir(parents=True, exist_ok=True)
            with EngineSession(request, target.python, target.platform, logs, progress) as session:
                entry = try_setting(session, request, plan, table.table, options)
            measured[name] = entry
            write_durably(options.out, (json.dumps(found, indent=1) + "\n").encode())
            progress.say(f"{name}: {entry.get('failed', 'measured')}")
    return 1 if any("failed" in measured.get(name, {}) for name in only) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.capture_worth", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--engine", type=pathlib.Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--drafter")
    parser.add_argument("--method", default="eagle3")
    parser.add_argument("--speculative", default="{}", help="further keys, as JSON")
    parser.add_argument("--table", required=True, help="vLLM's ranges, as JSON")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", default=",".join(SETTINGS))
    parser.add_argument("--loads", default="128,100,50,8", help="open requests")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--window-s", type=float, default=2.0)
    parser.add_argument("--max-num-seqs", type=int, default=128)
    parser.add_argument("--max-draft-length", type=int, default=4)
    parser.add_argument("engine_args", nargs="*")
    return parser


if __name__ == "__main__":
    sys.exit(main())
