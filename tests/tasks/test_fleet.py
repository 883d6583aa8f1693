"""The harvest of a fleet, without a server: what it keeps, and what does not stop it."""

import pathlib
import time

import pytest

pytest.importorskip("prefect")

from tabletune.maintain.deployments import Deployment
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.snapshot import LiveSnapshot
from tabletune.records.table import Parents
from tabletune.store.folder import FolderStore
from tabletune.store.layout import live_key
from tabletune.store.promotion import promote
from tabletune_tasks.fleet import harvest_fleet
from tests.maintain.live import END_S, snapshot
from tests.maintain.scenes import at, deployment, measured_prior, version
from tests.store.world import FINGERPRINT


@pytest.fixture
def one(tmp_path: pathlib.Path) -> Deployment:
    return deployment(tmp_path)


@pytest.fixture
def store(one: Deployment) -> FolderStore:
    opened = FolderStore(pathlib.Path(one.store))
    opened.put(FINGERPRINT)
    return opened


def put_in_force(store: FolderStore, prior: str = "") -> None:
    new = version().model_copy(update={"parents": Parents(acceptance_prior=prior)})
    promote(store, "live", store.put(new), None, at(), "a test", "a test", force=True)


def tell(store: FolderStore, run_id: str, accepted: tuple[int, int, int]) -> LiveSnapshot:
    told = snapshot(
        run_id, drafted=(5000, 4000, 3000), accepted=accepted, age_s=END_S - time.time() + 5
    )
    path = store.root / live_key("live", run_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(told.to_json())
    return told


def test_without_a_table_there_is_nothing_to_harvest_for(
    one: Deployment, store: FolderStore
) -> None:
    found = harvest_fleet.fn(one, store)
    assert (found.engines, found.prior, found.drifted) == (0, "", ())
    assert "no table yet" in found.notes[0]


def test_drift_is_told_against_what_the_table_was_built_from(
    one: Deployment, store: FolderStore
) -> None:
    counts = PositionCounts(
        drafted_through=(1000,) * 3, accepted_through=(800, 600, 400), request_steps=1000
    )
    before = measured_prior(counts, at(-1))
    put_in_force(store, store.put(before))
    for number in range(4):
        tell(store, f"engine-{number}", (1000 + number, 100, 10))
    found = harvest_fleet.fn(one, store)
    assert found.engines == 4
    assert found.drifted[0].startswith("survival at position 1: live 0.20")
    assert store.get(AcceptancePrior, found.prior).from_live_traffic
    assert harvest_fleet.fn(one, store) == found, "the same snapshots are the same prior"


def test_a_table_without_its_prior_is_harvested_for_all_the_same(
    one: Deployment, store: FolderStore
) -> None:
    put_in_force(store)
    tell(store, "engine", (1000, 100, 10))
    found = harvest_fleet.fn(one, store)
    assert found.prior
    assert found.drifted == ()
    assert any(note.startswith("drift cannot be told") for note in found.notes)
