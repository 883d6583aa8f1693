"""prune: remove from stores what no pointer, history or engine needs any more."""

import pathlib
from datetime import UTC, datetime
from typing import Any

from prefect import flow

from tabletune_flows.outcomes import ended
from tabletune_flows.settings import deployments_path
from tabletune_tasks import prepare, publish, retention


@flow(name="prune", persist_result=False)
def prune(
    deployment: str | None = None,
    apply: bool | None = None,
    config: pathlib.Path | None = None,
) -> Any:
    """Look for records that nobody needs any more, and remove them where that is wanted.

    Kept is what the `retention` section of each deployment says.

    Args:
        deployment: look only at the store of this one; all by default.
        apply: remove; false only says what would go. By default each store's deployments
            decide by `retention.unattended`.
        config: the deployments file; by default the one that TABLETUNE_DEPLOYMENTS names.
    """
    path = config or deployments_path()
    every = prepare.read_deployments(path)
    chosen = None if deployment is None else prepare.named(every, deployment, path)
    found = [
        retention.prune_store(store, policy, policy.unattended if apply is None else apply, now())
        for store, policy in retention.policies_by_store(every).items()
        if chosen is None or chosen.store == store
    ]
    lines = [f"{one.store}: {words}" for one in found for words in one.words()]
    applied = [one for one in found if one.applied]
    message = f"{len(found)} stores looked at, {len(applied)} pruned"
    publish.publish_text("prune", publish.listed(message, lines))
    gone = {one.store: one.removed for one in applied}
    return ended("Pruned" if applied else "Prune planned", message, lines, removed=gone)


def now() -> datetime:
    """The present time."""
    return datetime.now(UTC)
