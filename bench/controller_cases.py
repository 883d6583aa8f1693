"""The runs of controller_sim: which scenario under which policy, and what one of them gives."""

import dataclasses
import pathlib
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from tabletune.records.evidence import surface_of
from tabletune.records.step_profile import Profile
from tabletune.simulate.controller_policy import ControllerPolicy
from tabletune.simulate.policy import Policy
from tabletune.simulate.result import SimulationResult
from tabletune.simulate.scenarios.kinds import CHAT, CODE, MATH
from tabletune.simulate.scenarios.named import (
    CLOSED,
    loads,
    misprofiled,
    mistuned,
    serving_cost,
    steady,
    switching,
    unquiet_host,
    useless_drafter,
)
from tabletune.simulate.scenarios.promotion import controller
from tabletune.simulate.scenarios.roster import rivals
from tabletune.simulate.scenarios.scenario import Scenario, Window
from tabletune.simulate.scenarios.score import expected_share, probe_cost
from tabletune.simulate.step_cost import StepCost, step_times

PROFILE = (
    pathlib.Path(__file__).parent.parent
    / "tests/golden/h200_vllm0.32.0_qwen3-4b_eagle3_profile.v1.json"
)
MAX_NUM_SEQS = 128
CLOSED_LOADS = tuple(f"closed {n}" for n in CLOSED)
OPEN_LOADS = ("poisson", "bursty")
EARLY = ((0.0, 2.0), (2.0, 5.0), (5.0, 10.0), (10.0, 20.0))

SCENARIOS: dict[str, Callable[..., Scenario]] = {
    "mistuned": mistuned,
    "switch": switching,
    "useless drafter": useless_drafter,
    "mis-profiled": misprofiled,
    "mis-profiled blocks": lambda *a: misprofiled(*a, blocks=True),
    "unquiet host": unquiet_host,
    "steady": steady,
    "code": lambda *a: steady(*a, kind=CODE, duration_s=60.0),
    "chat": lambda *a: steady(*a, kind=CHAT, duration_s=60.0),
    "math": lambda *a: steady(*a, kind=MATH, duration_s=60.0),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One run: a scenario of a group at a load with a seed, under a policy."""

    group: str
    load: str
    seed: int
    policy: str


def cases(mistuned_seeds: int = 50, others: float = 1.0, first_seed: int = 0) -> list[Case]:
    """All runs. others: how many of the other groups' seeds are used, as a share. first_seed:
    seeds count from there; the controller was tuned on those from 0 on."""

    def seeds(count: int) -> range:
        return range(first_seed, first_seed + max(1, round(count * others)))

    every = CLOSED_LOADS + OPEN_LOADS
    plan: list[tuple[str, tuple[str, ...], range, tuple[str, ...]]] = [
        ("steady", every, seeds(2), ("tuned", "controller")),
        (
            "mistuned",
            CLOSED_LOADS,
            range(first_seed, first_seed + mistuned_seeds),
            ("tuned", "stale", "controller"),
        ),
        ("switch", every, seeds(8), ("tuned", "stale", "controller", "oracle")),
        ("mis-profiled", CLOSED_LOADS, seeds(30), ("tuned", "stale", "controller")),
        ("mis-profiled blocks", CLOSED_LOADS, seeds(8), ("tuned", "stale", "controller")),
        ("useless drafter", CLOSED_LOADS, seeds(4), ("tuned", "stale", "controller")),
        ("unquiet host", every, seeds(8), ("tuned", "stale", "controller")),
        ("switch", every, seeds(1), tuple(rivals(scenario(Case("switch", "poisson", 0, ""))))),
    ]
    for kind in ("code", "chat", "math"):
        names = tuple(rivals(scenario(Case(kind, "poisson", 0, ""))))
        plan.append((kind, every, seeds(1), ("tuned", "oracle", "controller", *names)))
    return [
        Case(group, load, seed, policy)
        for group, group_loads, group_seeds, policies in plan
        for seed in group_seeds
        for load in group_loads
        for policy in policies
    ]


@cache
def cost() -> StepCost:
    """The recorded H200's step times, dense up to the largest batch."""
    profile = Profile.from_json(PROFILE.read_bytes())
    return serving_cost(step_times(surface_of(profile, None), MAX_NUM_SEQS))


def scenario(case: Case) -> Scenario:
    return SCENARIOS[case.group](cost(), loads(MAX_NUM_SEQS)[case.load], case.seed)


def policy(case: Case, scene: Scenario) -> Policy:
    """A fresh policy of the case's name."""
    own: dict[str, Callable[[], Policy]] = {
        "tuned": scene.tuned,
        "stale": scene.stale,
        "oracle": scene.oracle,
        "controller": lambda: controller(scene),
    }
    return (own | rivals(scene))[case.policy]()


def run(case: Case) -> dict[str, Any]:
    """Run a case. Shares are of the tuned table's expected throughput, see `score`."""
    scene = scenario(case)
    chosen = policy(case, scene)
    begun_s = time.process_time()
    result = scene.engine(chosen).run(scene.end_s)
    row: dict[str, Any] = dataclasses.asdict(case) | {
        "simulated_s": scene.end_s,
        "cpu_s": time.process_time() - begun_s,
        "windows": {w.name: _window(result, scene, w) for w in scene.windows},
    }
    if isinstance(chosen, ControllerPolicy):
        row |= _decisions(chosen, result, scene)
    return row


def _window(result: SimulationResult, scene: Scenario, window: Window) -> dict[str, float]:
    return {
        "tok_s": result.throughput_tok_s(window.from_s, window.until_s),
        "share": _share(result, scene, window),
    }


def _share(result: SimulationResult, scene: Scenario, window: Window) -> float:
    reference = scene.tuned_lengths(scene.kind_at(window.from_s))
    return expected_share(result, scene, window, reference)


def _decisions(
    chosen: ControllerPolicy, result: SimulationResult, scene: Scenario
) -> dict[str, Any]:
    tables: list[tuple[float, tuple[int, ...]]] = [(0.0, scene.start_lengths)]
    for at_s, decision in chosen.decisions:
        if decision.lengths is not None and decision.kind != "explore":
            tables.append((at_s, decision.lengths))
    kinds = [decision.kind for _, decision in chosen.decisions]
    last = scene.phases[-1][0]
    return {
        "decisions": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "swaps_at_s": [
            round(at_s, 2) for at_s, d in chosen.decisions if d.kind in ("swap", "revert", "off")
        ],
        "probing": {w.name: probe_cost(result, scene, w, tables) for w in scene.windows},
        # How fast it goes: the share in the first seconds after the last change.
        "early": {
            f"{from_s:g}-{until_s:g} s": _share(
                result, scene, Window("", last + from_s, last + until_s)
            )
            for from_s, until_s in EARLY
        },
    }


def from_rows(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int, str], dict[str, Any]]:
    """By (group, load, seed, policy)."""
    return {(r["group"], r["load"], r["seed"], r["policy"]): r for r in rows}
