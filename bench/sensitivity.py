"""How far off survival and step times may be, and how little suffices (computed, not run).

    python -m bench.sensitivity --out bench/results/sensitivity.json [--draws 40]

See bench/evaluation/sensitivity.py for what is computed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
from dataclasses import replace
from typing import Any

import numpy as np

from bench.controller_cases import PROFILE
from bench.evaluation.sensitivity import (
    LIMITS,
    SURVIVALS,
    Truth,
    builders,
    by_cell_noise,
    by_drafting_error,
    by_effort,
    by_survival_error,
    limits_crossed,
    truth_of,
    with_survival,
)
from tabletune.records.step_profile import Profile

READING = (
    "Computed from one recorded profile (one H200, vLLM 0.32.0, Qwen3-4B shape with an EAGLE-3 "
    "head), not run on an engine. worst: loss of goodput against the best length at the batch "
    "size where it is largest, 1 to 128 requests; mean: over batch sizes. crossed: the errors "
    "nearest to 0, on the low and on the high side, at which the worst loss reaches 1, 3 and "
    "5 %. Survival is synthetic. The truth is the recorded profile itself, so what a grid "
    "leaves out between its own batch sizes is not seen."
)
ERRORS = tuple(round(e, 2) for e in np.arange(-0.6, 0.6001, 0.02).tolist())
SPREADS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3)
SAMPLES = (2, 3, 5, 10, 20, 30)
TRIED_SAMPLES, TRIED_STEPS = (3, 10, 30), (100, 1000, 3700)
REQUEST_STEPS = (30, 100, 300, 1000, 3700)
GRIDS: dict[str, tuple[int, ...]] = {
    "2 batch sizes": (1, 128),
    "3 batch sizes": (1, 32, 128),
    "5 batch sizes": (1, 8, 32, 64, 128),
    "7 batch sizes": (1, 8, 32, 48, 64, 96, 128),
    "12 batch sizes": (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 128),
}
SUFFICES = 0.03
"""The cheapest measurement whose worst loss stays below this in 95 % of the draws."""


def compute(
    profile: Profile, draws: int, max_merge_loss: float | None, seed: int = 0
) -> dict[str, Any]:
    """The result file's content."""
    first = replace(truth_of(profile, SURVIVALS["mid"]), max_merge_loss=max_merge_loss)
    grids = GRIDS | {f"{len(profile.batch_sizes)} batch sizes": profile.batch_sizes}
    found: dict[str, Any] = {"what": "sensitivity of the table", "reading": READING, "draws": draws}
    found["max_merge_loss"] = first.max_merge_loss
    found |= {"profile": PROFILE.name, "survivals": SURVIVALS, "grids": grids, "limits": LIMITS}
    for name, survival in SURVIVALS.items():
        truth = with_survival(first, survival)
        rng = np.random.default_rng([seed, len(found)])
        found[name] = _one(truth, grids, draws, rng)
    return found


def _one(
    truth: Truth, grids: dict[str, tuple[int, ...]], draws: int, rng: np.random.Generator
) -> dict[str, Any]:
    whole, samples = max(grids.values(), key=len), max(SAMPLES)
    survival, drafting = by_survival_error(truth, ERRORS), by_drafting_error(truth, ERRORS)
    cells = by_cell_noise(truth, SPREADS, draws, rng)
    efforts = {
        "grid": [by_effort(truth, g, samples, 3700, draws, rng) for g in grids.values()],
        "samples": [by_effort(truth, whole, n, 3700, draws, rng) for n in SAMPLES],
        "prompts": [by_effort(truth, whole, samples, n, draws, rng) for n in REQUEST_STEPS],
    }
    tried = [
        by_effort(truth, grid, n, steps, max(5, draws // 2), rng)
        for grid, n, steps in itertools.product(grids.values(), TRIED_SAMPLES, TRIED_STEPS)
    ]
    enough = [row for row in tried if row["worst_p95"] <= SUFFICES]
    return {
        "builders": builders(truth),
        "survival": {"rows": survival, "crossed": limits_crossed(survival)},
        "drafting_time": {"rows": drafting, "crossed": limits_crossed(drafting)},
        "cell_noise": {"rows": cells, "crossed": limits_crossed(cells)},
        **efforts,
        "cheapest": min(enough, key=lambda row: row["step_time_s"], default=None),
    }


def main() -> None:
    """Compute and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--max-merge-loss", type=float, default=None)
    options = parser.parse_args()
    found = compute(Profile.from_json(PROFILE.read_bytes()), options.draws, options.max_merge_loss)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    for name in SURVIVALS:
        crossed = {key: found[name][key]["crossed"] for key in ("survival", "drafting_time")}
        print(name, crossed, "cheapest:", found[name]["cheapest"])


if __name__ == "__main__":
    main()
