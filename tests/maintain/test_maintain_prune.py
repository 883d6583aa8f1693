"""Pruning a store by its URL, over folders and a real S3 server."""

import pathlib

import pytest

from tabletune.maintain.policies import RetentionPolicy
from tabletune.maintain.prune import policies_by_store, prune, prune_if_there
from tabletune.records.snapshot import LiveSnapshot
from tabletune.records.table import TableVersion
from tabletune.store.base import Store
from tabletune.store.errors import NoStore
from tabletune.store.layout import live_key
from tabletune.store.open_snapshots import open_snapshots
from tabletune.store.promotion import promote
from tests.maintain.live import snapshot
from tests.maintain.scenes import NOW, at, deployment
from tests.maintain.test_maintain_retention import put_version
from tests.store.places import Place
from tests.store.world import FINGERPRINT

USUAL = RetentionPolicy()


@pytest.fixture
def store(place: Place) -> Store:
    """One version in force, one that never was, both old."""
    opened = place.open()
    opened.put(FINGERPRINT)
    name, seen, _ = put_version(opened, 1, 300)
    promote(opened, "live", name, seen, at(-24 * 300), "a test", "a test")
    put_version(opened, 2, 300)
    return opened


def tell(place: Place, one: LiveSnapshot) -> None:
    place.write(live_key(one.channel, one.engine.run_id), one.to_json())


def test_a_plan_changes_nothing(place: Place, store: Store) -> None:
    before = place.snapshot()
    found = prune(store.url, USUAL, NOW)
    assert len(found.plan.remove) == 3
    assert (found.applied, found.removed) == (False, 0)
    assert found.words()[0].startswith("to remove: 1 of acceptance_prior")
    assert place.snapshot() == before


def test_what_was_planned_is_removed_once(place: Place, store: Store) -> None:
    tell(place, snapshot("gone", age_s=31 * 86400.0))
    tell(place, snapshot("there", age_s=60.0))
    found = prune(store.url, USUAL, NOW, apply=True)
    assert found.removed == 4
    assert len(store.list(TableVersion)) == 1
    assert open_snapshots(store.url).list_snapshots("live") == ("there",)
    assert prune(store.url, USUAL, NOW, apply=True).removed == 0


def test_a_damaged_snapshot_is_named_and_stops_it(place: Place, store: Store) -> None:
    place.write(live_key("live", "broken"), b"{")
    found = prune(store.url, USUAL, NOW, apply=True)
    assert found.removed == 0
    assert "live/broken" in found.words()[1]


def test_no_store_is_an_error_or_for_a_flow_a_note(place: Place) -> None:
    url = place.open().url
    with pytest.raises(NoStore, match="found nothing there"):
        prune(url, USUAL, NOW, apply=True)
    found = prune_if_there(url, USUAL, NOW, apply=True)
    assert (found.applied, found.removed, found.plan.remove) == (False, 0, ())
    assert found.words()[1].startswith("no store yet: expected a table store at ")
    assert place.snapshot() == {}


def test_deployments_of_one_store_keep_what_any_of_them_wants(tmp_path: pathlib.Path) -> None:
    shared = {"store": str(tmp_path / "store")}
    one = deployment(tmp_path, **shared, retention=RetentionPolicy(keep_versions=9))
    unattended = RetentionPolicy(history_days=200, unattended=True)
    two = deployment(tmp_path, **shared, name="code", retention=unattended)
    alone = deployment(tmp_path, name="alone", store="elsewhere", retention=unattended)
    found = policies_by_store((one, two, alone))
    assert found[shared["store"]] == RetentionPolicy(keep_versions=9, history_days=200)
    assert found["elsewhere"].unattended


@pytest.mark.parametrize("days", [800_000.0, 1e9, 1e308])
def test_so_many_days_keep_all(store: Store, days: float) -> None:
    policy = RetentionPolicy(history_days=days, young_days=days, engine_days=days)
    assert prune(store.url, policy, NOW).plan.remove == ()
