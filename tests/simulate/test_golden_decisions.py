"""Decision logs of simulated runs, kept and replayed: the controller decides as it did.

    pytest tests/simulate/test_golden_decisions.py --update-golden

records them anew; a change of decisions needs a line in the changelog.
"""

import dataclasses
import pathlib

import numpy as np
import pytest

from bench.controller_cases import cost
from tabletune.core.controller.controller import Controller
from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.settings import ControllerSettings
from tabletune.pipeline.replay import replay
from tabletune.records.decision_log import encode_header, encode_tick, parse_trace
from tabletune.simulate.controller_policy import ControllerPolicy
from tabletune.simulate.loads import ClosedLoop
from tabletune.simulate.scenarios import named
from tabletune.simulate.scenarios.kinds import CHAT, CODE, FOREIGN
from tabletune.simulate.scenarios.promotion import promoted
from tabletune.simulate.scenarios.scenario import Scenario
from tabletune.simulate.step_cost import StepCost

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "decisions"
#: 2026-11-29 00:00:00 UTC.
STARTED_UNIX_S = 1_795_910_400.0
SEED = 17


def scenarios() -> dict[str, tuple[Scenario, float]]:
    """By name: what runs, and until when."""
    small = small_cost(40)
    switch = named.switching(small, ClosedLoop(24), 1, (CODE, CHAT, FOREIGN, CODE))
    short = [(12.0 * i, kind) for i, (_, kind) in enumerate(switch.phases)]
    return {
        "switches": (dataclasses.replace(switch, phases=tuple(short)), 48.0),
        "mistuned": (named.mistuned(small, ClosedLoop(32), 1), 15.0),
        "misprofiled": (named.misprofiled(small, ClosedLoop(32), 6), 15.0),
    }


def small_cost(max_batch_size: int) -> StepCost:
    """The recorded H200's step times, few enough for a small file."""
    return dataclasses.replace(cost(), step_time_s=cost().step_time_s[: max_batch_size + 1])


def record(name: str, scene: Scenario, until_s: float) -> bytes:
    """The log of a run, as the plugin would write it."""
    following, settings = promoted(scene), ControllerSettings()
    lines = [
        encode_header(
            run_id=name,
            file_number=0,
            plugin_version="simulated",
            vllm_version="simulated",
            channel="live",
            mode="adapt",
            seed=SEED,
            boot_lengths=scene.start_lengths,
            settings=settings,
            promoted=following,
            opened_unix_s=STARTED_UNIX_S,
        )
    ]

    def keep(observation: LiveObservation, now_s: float, decision: Decision) -> None:
        lines.append(encode_tick(now_s, STARTED_UNIX_S + now_s, observation, decision))

    rng = np.random.default_rng(SEED)
    inside = Controller(settings, following, scene.start_lengths, rng)
    scene.engine(ControllerPolicy(inside, trace=keep)).run(until_s)
    return b"".join(lines)


@pytest.mark.parametrize("name", ["switches", "mistuned", "misprofiled"])
def test_every_recorded_decision_comes_out_again(name: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{name}.jsonl"
    if request.config.getoption("--update-golden", default=False):
        scene, until_s = scenarios()[name]
        path.write_bytes(record(name, scene, until_s))
    with path.open("rb") as file:
        trace = parse_trace(file)
    result = replay([trace])
    assert result.obstacle == ""
    assert not result.torn
    assert [(d.unix_s - STARTED_UNIX_S, d.recorded, d.replayed) for d in result.differences] == []
    assert result.ticks == len(trace.entries)
    # Worth keeping: it swaps and probes in them.
    assert result.kinds["swap"] >= (3 if name == "switches" else 1)
    assert result.kinds["explore"] >= 1
