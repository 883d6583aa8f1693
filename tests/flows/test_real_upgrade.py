"""An upgrade on real parts: Prefect, MLflow, S3, and two versions of vLLM on the CPU.

One story, told in order; what a test needs of the one before is a fixture. A first table is
tuned, approved by a person and promoted; the engine's version moves and both are compared; a bad
table is stopped; the new table reaches an engine that serves, and a roll-back does. Ten boots
make it too long for every day: `make test-upgrade` runs it.
"""

import os
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tabletune.commands.exit_codes import ExitCode
from tabletune.maintain.decisions import decide
from tabletune.maintain.deployments import load_deployments
from tabletune.measure.clock import SystemClock
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict
from tests.flows.real_world import (
    CANDIDATE,
    STRICT,
    TODAY,
    WIDE,
    RealWorld,
    Serving,
    approved_retune,
    despite_noise,
    real_world,
    serving,
)
from tests.flows.test_upgrade_flow import check_comparison, run_flow
from tests.pipeline.command_process import command

pytestmark = [pytest.mark.engine, pytest.mark.stack, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def world(
    engine_python: pathlib.Path,
    engine_model: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RealWorld]:
    """A deployment on today's engine, with the candidate's beside it."""
    if not os.environ.get("TABLETUNE_TEST_UPGRADE"):
        pytest.skip("takes a quarter of an hour: make test-upgrade")
    with real_world(engine_python, engine_model, tmp_path_factory, TODAY, CANDIDATE) as made:
        yield made


@pytest.fixture(scope="module")
def first(world: RealWorld) -> dict[str, Any]:
    """The first retune's result, approved by a person."""
    return approved_retune(world)


@pytest.fixture(scope="module")
def upgraded(world: RealWorld, first: dict[str, Any]) -> dict[str, Any]:
    """The upgrade's result, after the requirement in the file has moved."""
    assert first["outcome"] == "Promoted"
    world.configure(engine=CANDIDATE)
    return despite_noise(lambda: run_flow(world, "upgrade"))


def test_both_engine_versions_are_measured_and_compared(
    world: RealWorld, first: dict[str, Any], upgraded: dict[str, Any]
) -> None:
    assert upgraded["outcome"] == "Upgrade compared"
    assert upgraded["passed"] == {"today": True, "candidate": True}
    assert upgraded["old"] == first["version"]
    versions = [world.store.get(TableVersion, upgraded[name]) for name in ("old", "new")]
    assert versions[0].fingerprint != versions[1].fingerprint
    pointer = world.pointer()
    assert pointer is not None
    assert pointer.table_version == first["version"], "an upgrade promotes nothing by itself"
    check_comparison(world, upgraded)
    compared = run_flow(world, "compare", old="live", new=upgraded["new"][:12])
    assert compared["page"] == upgraded["page"]
    assert look(world) == ([world.name], [world.name])
    assert world.engine.living() == []


def look(world: RealWorld) -> tuple[list[str], list[str]]:
    """What a watch would tune, and what it would compare."""
    from tabletune_flows.running import run_one

    found = run_one("watch", {"config": world.config, "start": False})
    assert found["problems"] == []
    return found["retune"], found["upgrade"]


@dataclass
class Bad:
    """A bad table, the verdict that was measured on it, and the result of its flow."""

    version: str
    verdict: str
    result: dict[str, Any]


@pytest.fixture(scope="module")
def bad(world: RealWorld, first: dict[str, Any], upgraded: dict[str, Any]) -> Bad:
    """A retune on falsified counts: its table is bad, and really measured.

    Validation may correct it to a better one; of that a person is asked, and nobody answers.
    """
    good = world.store.get(TableVersion, upgraded["new"])
    world.configure(margins=STRICT, gate={"approval": "always"})
    with world.with_guesses(good.fingerprint, right=False):
        result = run_flow(world, "retune", answer_s=6)
    assert result["outcome"] == "Refused", result
    pointer = world.pointer()
    assert pointer is not None
    assert pointer.table_version == first["version"]
    made = world.store.get(TableVersion, result["version"])
    version = made.parents.previous_version or result["version"]
    verdicts = {name: world.store.get(Verdict, name) for name in world.store.list(Verdict)}
    (verdict,) = [name for name, one in verdicts.items() if one.table_version == version]
    return Bad(version, verdict, result)


@pytest.fixture(scope="module")
def engine(world: RealWorld, upgraded: dict[str, Any], bad: Bad) -> Iterator[Serving]:
    """An engine of the new version that serves, started as TableTune says."""
    with serving(world, upgraded["new"]) as running:
        yield running


def test_promotions_and_roll_backs_reach_an_engine_that_serves(
    world: RealWorld, first: dict[str, Any], upgraded: dict[str, Any], bad: Bad, engine: Serving
) -> None:
    status = engine.wait(lambda s: s["controller"] and s["controller"]["refusals"] > 0)
    assert "engine version" in str(status["controller"]["last_refusals"]), "it is for the old one"
    assert status["table"] == status["boot_table"]

    boots = world.boot_logs()
    world.configure(margins=WIDE, gate={"approval": "never"})
    promoted = run_flow(world, "retune")
    assert promoted["outcome"] == "Promoted", promoted
    assert promoted["version"] == upgraded["new"]
    assert world.boot_logs() == boots, "everything was measured by the upgrade"
    good = world.ranges(upgraded["new"])
    engine.wait(engine.follows(upgraded["new"], good))

    forced = ["promote", bad.version, "--store", world.store_url, "--force", "--json"]
    assert command(forced, world.folder).json["moved"]
    engine.wait(engine.follows(bad.version, world.ranges(bad.version)))
    back = run_flow(world, "rollback", who="ann", reason="it was refused for a reason")
    assert back["outcome"] == "Rolled back"
    assert back["version"] == upgraded["new"]
    engine.wait(engine.follows(upgraded["new"], good))


def test_a_bad_table_is_stopped_by_the_gate(world: RealWorld, bad: Bad, engine: Serving) -> None:
    """It was, before the other tests went on; and it still is."""
    assert world.store.get(TableVersion, bad.version).table.dense()[-1] == 0
    (deployment,) = load_deployments(world.config)
    said = decide(world.store, deployment, bad.version, bad.verdict, SystemClock(), "a test")
    assert said.outcome == "refuse"
    assert said.decision.reasons[0].startswith("the verdict failed: ")
    by_hand = command(["promote", bad.version, "--store", world.store_url], world.folder)
    assert by_hand.process.returncode == ExitCode.STORE
    assert "the verdict failed: " in by_hand.errors
