"""The task that removes from a store what nobody needs any more."""

from datetime import datetime

from tabletune.maintain.policies import RetentionPolicy
from tabletune.maintain.prune import Pruned, policies_by_store, prune_if_there
from tabletune_tasks.calls import library_task

__all__ = ["policies_by_store", "prune_store"]


@library_task("prune store", timeout_s=4 * 3600)
def prune_store(store: str, policy: RetentionPolicy, apply: bool, now: datetime) -> Pruned:
    """Plan what a store needs no more, and remove it if `apply`; nothing where none is yet."""
    return prune_if_there(store, policy, now, apply)
