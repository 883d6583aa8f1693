"""How long a watch takes over many deployments that did not change.

    python -m bench.watch --out bench/results/watch.json [--counts 1000,10000] [--models 50]

Makes deployments in a temporary folder: each with a store of its own (a folder) and a table in
force, all on one CPU engine environment (a real probe answers for it, no engine runs), sharing
some models of real form. Then it looks at all of them: cold, without anything remembered, and
warm, with the state of the look before read back from its file, as a schedule would. One
process, one thread.
"""

import argparse
import json
import os
import pathlib
import platform
import sys
import tempfile
import time
from typing import Any

from bench.command_line import told
from bench.watch_fleet import make_fleet
from tabletune.maintain.deployments import load_deployments
from tabletune.maintain.watch_all import watch_all
from tabletune.maintain.watch_state import load_state, save_state
from tabletune.measure.clock import SystemClock
from tabletune.measure.environments import EngineEnvironments

READING = (
    "warm_s is one whole sweep over deployments of which none changed: reading the deployments "
    "file, the remembered state, every pointer, every model's and engine's file times, every "
    "confirmation, and writing the state. cold_s is the same with nothing remembered. "
    "Seconds of wall time; cpu_s of this process. The host may be busy with other work."
)


def sweep(file: pathlib.Path, engines: pathlib.Path, state_path: pathlib.Path) -> dict[str, Any]:
    """One look at every deployment of the file; how long its parts took, in seconds."""
    start_s, cpu_s = time.perf_counter(), time.process_time()
    deployments = load_deployments(file)
    read_s = time.perf_counter() - start_s
    state = load_state(state_path)
    clock, environments = SystemClock(), EngineEnvironments(engines)
    results = watch_all(deployments, state, environments, clock)
    save_state(state, state_path)
    wall_s = time.perf_counter() - start_s
    problems = [result.problem for result in results if result.problem]
    if problems:
        raise SystemExit(f"{len(problems)} deployments could not be looked at: {problems[0]}")
    return {
        "wall_s": round(wall_s, 3),
        "cpu_s": round(time.process_time() - cpu_s, 3),
        "read_deployments_s": round(read_s, 3),
        "state_bytes": state_path.stat().st_size,
        "to_retune": sum(result.retune for result in results),
    }


def measure(count: int, models: int, repeats: int) -> dict[str, Any]:
    """The sweeps over `count` deployments."""
    with tempfile.TemporaryDirectory(prefix="tabletune-watch-") as name:
        root = pathlib.Path(name)
        file, engines = make_fleet(root, count, min(models, count))
        state_path = root / "state.json"
        cold = sweep(file, engines, state_path)
        warm = [sweep(file, engines, state_path) for _ in range(repeats)]
    best = min(warm, key=lambda one: one["wall_s"])
    return {
        "deployments": count,
        "models": min(models, count),
        "cold": cold,
        "warm": warm,
        "warm_s": best["wall_s"],
        "warm_ms_per_deployment": round(1e3 * best["wall_s"] / count, 3),
        "unchanged": all(one["to_retune"] == 0 for one in warm),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--counts", default="1000,10000")
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    sizes = [measure(int(n), options.models, options.repeats) for n in options.counts.split(",")]
    result = {
        "what": "how long a watch takes over deployments that did not change",
        "command": told("bench.watch", sys.argv[1:]),
        "measured_at": SystemClock().utc(),
        "reading": READING,
        "host": {
            "cores": os.cpu_count(),
            "load_average_1min": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
        },
        "sizes": sizes,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    for one in sizes:
        print(
            f"{one['deployments']:6d} deployments: warm {one['warm_s']:.2f} s "
            f"({one['warm_ms_per_deployment']:.2f} ms each), cold {one['cold']['wall_s']:.2f} s"
        )


if __name__ == "__main__":
    main()
