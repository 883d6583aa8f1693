"""SIGKILL of an engine at each stage: the run ends or goes on, and nothing measured is lost."""

import os
import signal

import pytest

from tabletune.measure.engine_errors import EngineError
from tabletune.measure.qualify_fallback import NothingQualified
from tests.flows.drills import (
    AtStages,
    nothing_left,
    reaped,
    records_of,
    retune,
    sure,
    tracked_once,
)
from tests.flows.world import FlowWorld

pytestmark = pytest.mark.stack


def kill(world: FlowWorld, part: str, boot: int = -1) -> None:
    """The API server (`pid`) or the engine core (`core_pid`) of a boot."""
    os.kill(world.engine.boots()[boot][part], signal.SIGKILL)


@pytest.mark.drill
def test_an_engine_killed_at_any_stage_loses_nothing(world: FlowWorld) -> None:
    sure(world)
    dies_at(world, "qualify", "pid")
    dies_at(world, "acceptance", "core_pid")
    assert "qualification.json" in records_of(world)
    # In the profile another engine takes over; the run then dies with the one that validates.
    with AtStages({"profile": lambda: kill(world, "core_pid")}):
        dies_at(world, "validate", "pid")
    measured = records_of(world)
    assert {"qualification.json", "acceptance_prior.json", "profile.json"} <= set(measured)
    dies_at(world, "beside", "core_pid")
    assert {name: records_of(world)[name] for name in measured} == measured
    result = retune(world)
    assert result["outcome"] == "Promoted", result
    assert {name: records_of(world)[name] for name in measured} == measured
    reaped(world)
    tracked_once(world, result["version"])


def dies_at(world: FlowWorld, stage: str, part: str) -> None:
    """The engine that was booted last dies as the stage begins; the flow tells so."""
    with (
        AtStages({stage: lambda: kill(world, part)}),
        pytest.raises((EngineError, NothingQualified)),
    ):
        retune(world)
    nothing_left(world)
    assert world.pointer() is None
