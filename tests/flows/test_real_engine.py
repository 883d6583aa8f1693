"""The whole on real parts: Prefect, MLflow, S3, and vLLM on the CPU.

One story, told in order; what a test needs of the one before is a fixture. A first table is
tuned, approved by a person through the API and promoted; nothing changes; an engine follows it;
a bad table is refused, forced by hand, and rolled back; what the engine served is harvested.
The upgrade from one engine version to another is told in test_real_upgrade.py.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tabletune.commands.exit_codes import ExitCode
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.table import TableVersion
from tests.flows.real_world import (
    CANDIDATE,
    RealWorld,
    Serving,
    approved_retune,
    real_world,
    serving,
)
from tests.flows.seen import wait_until
from tests.flows.test_flow_approval import stored_decision
from tests.flows.test_retune_flow import check_mlflow
from tests.flows.test_upgrade_flow import run_flow
from tests.pipeline.command_process import command

pytestmark = [pytest.mark.engine, pytest.mark.stack, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def world(
    engine_python: pathlib.Path,
    engine_model: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RealWorld]:
    """A deployment on a real engine."""
    with real_world(engine_python, engine_model, tmp_path_factory, CANDIDATE) as made:
        yield made


@pytest.fixture(scope="module")
def first(world: RealWorld) -> dict[str, Any]:
    """The first retune's result, approved by a person."""
    return approved_retune(world)


def test_an_approved_first_table_is_promoted(world: RealWorld, first: dict[str, Any]) -> None:
    assert first["outcome"] == "Promoted", first
    pointer = world.pointer()
    assert pointer is not None
    assert pointer.table_version == first["version"]
    decision = stored_decision(world, first["decision"])
    assert (decision.outcome, decision.decided_by) == ("approve", "ann")
    check_mlflow(world, first["version"])
    assert world.engine.living() == []


def test_where_nothing_changed_nothing_is_booted(world: RealWorld, first: dict[str, Any]) -> None:
    boots = world.boot_logs()
    again = run_flow(world, "retune")
    assert again["outcome"] == "Unchanged", again
    assert world.boot_logs() == boots


@pytest.fixture(scope="module")
def engine(world: RealWorld, first: dict[str, Any]) -> Iterator[Serving]:
    """An engine that serves and follows, started as TableTune says."""
    with serving(world, first["version"]) as running:
        yield running


def test_promotions_and_roll_backs_reach_an_engine_that_serves(
    world: RealWorld, first: dict[str, Any], engine: Serving
) -> None:
    good = world.ranges(first["version"])
    engine.wait(engine.follows(first["version"], good))
    bad = built_on_guesses(world, first["version"], right=False)
    assert bad != first["version"]
    stopped = command(["promote", bad, "--store", world.store_url], world.folder)
    assert stopped.process.returncode == ExitCode.STORE
    assert "there is no verdict" in stopped.errors
    forced = ["promote", bad, "--store", world.store_url, "--force", "--json"]
    assert command(forced, world.folder).json["moved"]
    engine.wait(engine.follows(bad, world.ranges(bad)))
    back = run_flow(world, "rollback", who="ann", reason="nobody validated it")
    assert back["outcome"] == "Rolled back", back
    assert back["version"] == first["version"]
    engine.wait(engine.follows(first["version"], good))


def built_on_guesses(world: RealWorld, version: str, *, right: bool) -> str:
    """A table for counts that say that every guess is right, or none; built, not validated.

    Where none is, its lengths are 0 but where noise made steps with drafts seem the cheaper ones.
    """
    fingerprint = world.store.get(TableVersion, version).fingerprint
    build = ["build", "--out", str(world.out), "--store", world.store_url, "--json"]
    with world.with_guesses(fingerprint, right=right):
        made = command(build, world.folder)
    assert made.process.returncode == ExitCode.OK, made.errors
    built: str = made.json["table_version"]
    return built


def test_what_it_serves_becomes_the_next_prior(
    world: RealWorld, first: dict[str, Any], engine: Serving
) -> None:
    # The promoted one may draft nothing: on a busy machine its steps were measured as they came.
    drafting = built_on_guesses(world, first["version"], right=True)
    assert world.ranges(drafting)[0][-1] > 0
    forced = ["promote", drafting, "--store", world.store_url, "--force", "--json"]
    assert command(forced, world.folder).process.returncode == ExitCode.OK
    engine.wait(engine.follows(drafting, world.ranges(drafting)))
    for _ in range(3):
        engine.serve()

    def harvested() -> dict[str, Any] | None:
        found = run_flow(world, "harvest", start=False)
        return found if found["prior"] else None

    found = wait_until(harvested, "its snapshot tells enough")
    prior = world.store.get(AcceptancePrior, found["prior"])
    assert prior.from_live_traffic
    assert prior.fingerprint == world.store.get(TableVersion, first["version"]).fingerprint
    assert prior.counts.accepted_through[0] > 0
