"""The controller in simulation: against tuned, stale and fixed tables, and the rivals.

    python -m bench.controller_sim [--out bench/results/sim_controller.json] [--processes 2]
        [--mistuned 50] [--others 1.0] [--first-seed 0] [--rows FILE]
    python -m bench.controller_sim --show "mistuned/closed 32/1/controller"

The engine is simulated; its step times were recorded on one H200 (tests/golden), its traffic is
synthetic (simulate/scenarios/kinds.py). Every policy of a scenario meets the same requests, and
the scenarios are seeded: the result is the same whatever the number of processes. `--rows` keeps
every run as a line of a file, and an interrupted call goes on where that ends. `--show` runs one
case and prints its windows and decisions.
"""

import argparse
import json
import os
import pathlib
import platform
import sys
import time
from multiprocessing import get_context
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported: cores are processes

import numpy as np

from bench.controller_cases import Case, cases, from_rows, policy, run, scenario
from bench.controller_summary import figures
from tabletune.simulate.controller_policy import ControllerPolicy
from tabletune.simulate.scenarios.kinds import SOURCE

OUT = pathlib.Path(__file__).parent / "results" / "sim_controller.json"
READING = (
    "A simulation. Shares are of the tuned table (true step times, true survival). expected: each "
    "step that a policy ran is valued by what it takes on average, so without the noise of what "
    "was accepted; measured: output tokens in the window, closed loops only, with that noise. "
    "Windows begin 20 s after the start or the switch and last 40 s. Loss recovered: "
    "(controller - stale) / (tuned - stale), summed over all windows of all loads."
)


def run_all(plan: list[Case], processes: int, kept: pathlib.Path | None) -> list[dict[str, Any]]:
    """Every case, in the order of the plan whatever finishes first; progress on stderr."""
    done = {} if kept is None else from_rows(read_rows(kept))
    todo = [case for case in plan if key(case) not in done]
    lasts_s = {case.group: scenario(case).end_s for case in todo}
    whole_s = sum(lasts_s[case.group] for case in todo)
    begun_s, done_s, count = time.monotonic(), 0.0, 0
    with get_context("spawn").Pool(processes) as pool:
        for count, row in enumerate(pool.imap_unordered(run, todo, chunksize=1), start=1):
            done[row["group"], row["load"], row["seed"], row["policy"]] = row
            done_s += row["simulated_s"]
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            if count % 10 == 0 or count == len(todo):
                took_s = time.monotonic() - begun_s
                left_s = took_s * (whole_s / done_s - 1)
                note = f"\r{count}/{len(todo)} runs, {took_s:.0f} s, about {left_s:.0f} s left "
                print(note, end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    # What ran elsewhere before has been through JSON: so must the rest, to be the same.
    return json.loads(json.dumps([done[key(case)] for case in plan]))


def key(case: Case) -> tuple[str, str, int, str]:
    return case.group, case.load, case.seed, case.policy


def read_rows(kept: pathlib.Path) -> list[dict[str, Any]]:
    """The runs kept so far; a line cut off by an interruption does not count."""
    if not kept.exists():
        return []
    return [json.loads(line) for line in kept.read_text().splitlines() if line.endswith("}")]


def show(case: Case) -> None:
    """One case: windows and decisions, for a person."""
    found = run(case)
    scene = scenario(case)
    chosen = policy(case, scene)
    scene.engine(chosen).run(scene.end_s)
    print("start", rows_of(scene.start_lengths))
    for from_s, kind in scene.phases:
        print(f"tuned from {from_s:g} s ({kind.name})", rows_of(scene.tuned_lengths(kind)))
    if isinstance(chosen, ControllerPolicy):
        for at_s, decision in chosen.decisions:
            table = "" if decision.lengths is None else rows_of(decision.lengths)
            print(f"{at_s:7.2f} s {decision.kind}: {decision.reason} {table}")
    print(json.dumps(found, indent=1))


def rows_of(lengths: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(first, last, draft length) of the ranges of a dense table."""
    changes = [i for i in range(1, len(lengths)) if lengths[i] != lengths[i - 1]]
    firsts = [0, *changes]
    return [
        (first + 1, last, lengths[first])
        for first, last in zip(firsts, [*changes, len(lengths)], strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="The controller in simulation.")
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--mistuned", type=int, default=50, help="random mistuned tables")
    parser.add_argument("--first-seed", type=int, default=0, help="held-out seeds: 1000")
    parser.add_argument("--others", type=float, default=1.0, help="share of the other seeds")
    parser.add_argument("--rows", type=pathlib.Path, help="keep every run here, and resume")
    parser.add_argument("--show", help="GROUP/LOAD/SEED/POLICY: run one case")
    options = parser.parse_args()
    if options.show:
        group, load, seed, name = options.show.split("/")
        show(Case(group, load, int(seed), name))
        return
    begun_s = time.monotonic()
    before = 0 if options.rows is None else len(read_rows(options.rows))
    plan = cases(options.mistuned, options.others, options.first_seed)
    rows = run_all(plan, options.processes, options.rows)
    found = figures(rows, from_rows(rows))
    found = {
        "what": "the controller in a simulated engine: mistuned tables, switches of traffic, wrong "
        "profiles, steady traffic, and rivals",
        "reading": READING,
        "command": "python -m bench.controller_sim"
        + (f" --mistuned {options.mistuned}" if options.mistuned != 50 else "")
        + (f" --others {options.others:g}" if options.others != 1 else "")
        + (f" --first-seed {options.first_seed}" if options.first_seed else ""),
        "step_times": "tests/golden/h200_vllm0.32.0_qwen3-4b_eagle3_profile.v1.json: one H200, "
        "vLLM 0.32.0, Qwen3-4B shape with an EAGLE-3 head, up to 128 requests",
        "survival": SOURCE,
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "load_average_at_the_end": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "runs": len(rows),
        "processor_time_s": round(sum(row["cpu_s"] for row in rows), 1),
        "wall_time_s": round(time.monotonic() - begun_s, 1),
        "runs_kept_from_before": before,
    } | found
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    for line in found["targets"]:
        state = "holds" if line["holds"] else "DOES NOT HOLD"
        print(f"{line['target']:<55} {line['found']:>9} (wanted {line['wanted']:g}) {state}")


if __name__ == "__main__":
    main()
