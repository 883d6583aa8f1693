"""Plans and applies retention on a store by its URL."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.policies import RetentionPolicy
from tabletune.maintain.retention import RetentionPlan, apply_retention, plan_retention
from tabletune.records.snapshot import LiveSnapshot
from tabletune.store.errors import NoStore
from tabletune.store.open_snapshots import open_snapshots
from tabletune.store.opening import open_existing
from tabletune.store.snapshots import read_all

#: Which of two limits keeps more is the larger one, for each of these.
_LIMITS = ("keep_versions", "history_days", "young_days", "engine_days")


@dataclass(frozen=True)
class Pruned:
    """What retention found in a store.

    Attributes:
        store: its URL.
        removed: how many records and snapshots are gone now; 0 where it was only planned.
    """

    store: str
    plan: RetentionPlan
    applied: bool
    removed: int = 0

    def words(self) -> tuple[str, ...]:
        """What was or would be removed, then notes."""
        return self.plan.words("removed" if self.applied else "to remove")


def prune(url: str, policy: RetentionPolicy, now: datetime, apply: bool = False) -> Pruned:
    """Plan what a store needs no more, and remove it if `apply`.

    Raises:
        NoStore: there is none.
        StoreError: the store cannot be read or written; may be repeated.
    """
    store, reader = open_existing(url), open_snapshots(url)
    snapshots: list[LiveSnapshot] = []
    damaged: list[str] = []
    for channel in store.channels():
        found = read_all(reader, channel)
        snapshots += found.readable.values()
        damaged += [f"{channel}/{name}" for name in found.damaged]
    plan = plan_retention(store, snapshots, damaged, now, policy)
    removed = apply_retention(store, plan, reader) if apply else 0
    return Pruned(store.url, plan, apply, removed)


def prune_if_there(url: str, policy: RetentionPolicy, now: datetime, apply: bool) -> Pruned:
    """The same, for a store that its deployments' first promotion has yet to make; a name with
    a slip in it looks like that too, so the notes say it."""
    try:
        return prune(url, policy, now, apply)
    except NoStore as error:
        return Pruned(error.url, RetentionPlan((), (), 0, (f"no store yet: {error}",)), False)


def policies_by_store(deployments: Iterable[Deployment]) -> Mapping[str, RetentionPolicy]:
    """By store the policy that keeps what any of its deployments wants kept.

    It is unattended only where all of them are.
    """
    found: dict[str, RetentionPolicy] = {}
    for one in deployments:
        before = found.get(one.store)
        found[one.store] = one.retention if before is None else _both(before, one.retention)
    return found


def _both(one: RetentionPolicy, other: RetentionPolicy) -> RetentionPolicy:
    kept: dict[str, Any] = {name: max(getattr(one, name), getattr(other, name)) for name in _LIMITS}
    return RetentionPolicy(**kept, unattended=one.unattended and other.unattended)
