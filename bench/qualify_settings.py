"""Qualifies one engine under several capture settings, the bad ones included.

    python -m bench.qualify_settings --engine PYTHON --model FOLDER --drafter FOLDER \
        --out bench/results/FILE.json [--only planned,coarse,default,mixed] [-- ENGINE ARGS]

The settings:
    planned  the planner's choice: no crash, no stall at any batch size or switch is expected;
    mixed    the planner's choice with piecewise graphs for steps in which a prefill joins;
    coarse   FULL_DECODE_ONLY with sizes b·(K+1) for b in 1, 2, 4, 8, 16, 24, 32, 48, 64, 96,
             128 only: stalls are expected at batch sizes in between;
    default  vLLM's default graph mode with its default sizes: a crash is expected with several
             draft lengths (docs/capture-planning.md).

The result holds, for each setting: how it ended, what was excluded, and per batch size the
slowest step over its cell's median. It is written after each setting.
"""

import argparse
import json
import pathlib
import sys
from typing import Any

from bench.command_line import told
from tabletune.commands.console import TerminalProgress
from tabletune.core.capture import choose_plan
from tabletune.measure.clock import SystemClock
from tabletune.measure.engine_errors import EngineError
from tabletune.measure.probe import probe_engine
from tabletune.measure.qualify_options import QualifyOptions
from tabletune.measure.qualify_result import QualificationResult
from tabletune.pipeline.identify import identify_target
from tabletune.pipeline.plans import plan_record
from tabletune.pipeline.qualify_plan import qualify_plan
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.session import EngineSession
from tabletune.records.plan import CapturePlan

MAX_NUM_SEQS = 128
MAX_DRAFT_LENGTH = 4
COARSE = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)


def plans(version: str, method: str) -> dict[str, CapturePlan]:
    """The capture plan of each setting."""
    lengths = tuple(range(MAX_DRAFT_LENGTH + 1))

    def chosen(mixed_steps: bool) -> CapturePlan:
        return plan_record(
            choose_plan(
                MAX_NUM_SEQS,
                lengths,
                max_draft_length=MAX_DRAFT_LENGTH,
                version=version,
                runner="v2",
                method=method,
                mixed_steps=mixed_steps,
            )
        )

    def by_hand(mode: Any, sizes: set[int]) -> CapturePlan:
        return CapturePlan(
            graph_mode=mode,
            capture_sizes=tuple(sorted(sizes)),
            lengths=lengths,
            max_draft_length=MAX_DRAFT_LENGTH,
            max_num_seqs=MAX_NUM_SEQS,
            graph_count=0,
        )

    return {
        "planned": chosen(False),
        "mixed": chosen(True),
        "coarse": by_hand("FULL_DECODE_ONLY", {b * (k + 1) for b in COARSE for k in lengths}),
        "default": by_hand("FULL_AND_PIECEWISE", {b * (k + 1) for b in COARSE for k in lengths}),
    }


def result_of(result: QualificationResult) -> dict[str, Any]:
    """The result as plain values."""
    return {
        "passed": result.passed,
        "stalled": result.stalled,
        "reason": result.reason,
        "wall_time_s": round(result.wall_time_s, 1),
        "failed_checks": [
            {"name": c.name, "fault": c.fault, "evidence": c.evidence} for c in result.failed
        ],
        "checks": len(result.checks),
        "slowest_step_over_median": [vars_of(s) for s in result.slowest],
        "cell_medians": [vars_of(c) for c in result.cells],
    }


def vars_of(item: Any) -> dict[str, Any]:
    """A frozen dataclass or named tuple as a dictionary of rounded values."""
    values = item._asdict() if hasattr(item, "_asdict") else dict(vars(item))
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in values.items()}


def try_plan(
    session: EngineSession, request: RunRequest, plan: CapturePlan, progress: TerminalProgress
) -> dict[str, Any]:
    """Boot and qualify one plan; how it ended, as plain values."""
    entry: dict[str, Any] = {
        "graph_mode": plan.graph_mode,
        "capture_sizes": list(plan.capture_sizes),
        "lengths": list(plan.lengths),
        "graph_count": plan.graph_count,
    }
    try:
        live = session.measuring(plan)
    except EngineError as error:
        return entry | {"passed": False, "reason": str(error)[-3000:]}
    entry["boot_s"] = round(live.engine.boot_time_s, 1)
    captured = live.api.graphs()
    entry["captured"] = captured.get("counts", captured.get("reason"))
    result = qualify_plan(
        request,
        live,
        plan,
        clock=SystemClock(),
        progress=progress,
        options=QualifyOptions.for_step_time(
            0.008, MAX_NUM_SEQS, plan.lengths, "constant", check_output=False
        ),
    )
    return entry | result_of(result)


def main() -> None:
    parser = argparse.ArgumentParser(description="Qualify an engine under several settings.")
    parser.add_argument("--engine", type=pathlib.Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--drafter", required=True)
    parser.add_argument("--method", default="eagle3")
    parser.add_argument("--speculative", default="{}")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="planned,coarse,default,mixed")
    parser.add_argument("engine_args", nargs="*")
    options = parser.parse_args()
    request = RunRequest(
        model=options.model,
        method=options.method,
        engine=str(options.engine),
        drafter=options.drafter,
        max_draft_length=MAX_DRAFT_LENGTH,
        max_num_seqs=MAX_NUM_SEQS,
        engine_args=tuple(options.engine_args),
        speculative_extra=json.loads(options.speculative),
    )
    target = identify_target(request, options.engine)
    probe = probe_engine(options.engine)
    facts = {name: probe[name] for name in ("vllm", "torch_version", "driver_version", "gpus")}
    found: dict[str, Any] = {
        "what": "qualification of one engine under several capture settings",
        "command": told("bench.qualify_settings", sys.argv[1:]),
        "machine": facts,
        "synthetic": "dummy weights, synthetic acceptance",
        "settings": {},
    }
    with TerminalProgress() as progress:
        for name, plan in plans(target.fingerprint.engine.version, request.method).items():
            if name not in options.only.split(","):
                continue
            logs = options.out.parent / "logs" / name
            logs.mkdir(parents=True, exist_ok=True)
            with EngineSession(request, target.python, target.platform, logs, progress) as session:
                entry = try_plan(session, request, plan, progress)
            found["settings"][name] = entry
            options.out.write_text(json.dumps(found, indent=1))
            progress.say(f"{name}: passed={entry.get('passed')} {str(entry.get('reason'))[:300]}")


if __name__ == "__main__":
    main()
