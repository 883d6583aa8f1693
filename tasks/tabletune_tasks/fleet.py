"""The task that learns from what serving engines told back."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.drift import drift
from tabletune.maintain.harvest import harvest
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.base import RecordError
from tabletune.records.table import TableVersion
from tabletune.store.base import Store
from tabletune.store.errors import StoreError
from tabletune.store.open_snapshots import open_snapshots
from tabletune.store.snapshots import read_all
from tabletune_tasks.calls import library_task


@dataclass(frozen=True)
class Harvested:
    """What a fleet told.

    Attributes:
        engines: that counted. prior: the new prior's hash in the store, empty for none.
        drifted: what is off what the table in force was built from, in words.
        notes: what else should be known.
    """

    engines: int = 0
    prior: str = ""
    drifted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@library_task("harvest fleet", timeout_s=1800)
def harvest_fleet(deployment: Deployment, store: Store) -> Harvested:
    """Pool the live channel's snapshots into a prior, kept in the store, and look for drift."""
    channel = deployment.channels.live
    pointer, _ = store.read_pointer(channel)
    if pointer is None:
        return Harvested(notes=(f"channel {channel!r} has no table yet",))
    version = store.get(TableVersion, pointer.table_version)
    found = read_all(open_snapshots(deployment.store), channel)
    snapshots = tuple(found.readable.values())
    now = datetime.now(UTC)
    length = version.table.max_draft_length
    got = harvest(deployment.drift, snapshots, pointer.fingerprint, length, now)
    prior = store.put(got.prior) if got.prior is not None else ""
    damaged = tuple(f"{name}: {reason}" for name, reason in found.damaged.items())
    notes = (*got.reasons, *damaged)
    try:
        before = store.get(AcceptancePrior, version.parents.acceptance_prior)
    except (StoreError, RecordError) as error:  # forced into force, or pruned: no less a harvest
        notes = (*notes, f"drift cannot be told: {error}")
        return Harvested(len(got.engines), prior, (), notes)
    report = drift(deployment.drift, before, snapshots, pointer.fingerprint, time.time())
    return Harvested(len(got.engines), prior, tuple(report.words()), (*notes, *report.notes))
