"""rollback: put an earlier table version in force again."""

import pathlib
from typing import Any

from prefect import flow

from tabletune_flows.outcomes import ended
from tabletune_flows.settings import deployments_path
from tabletune_tasks import prepare, promotion, publish, track


@flow(name="rollback", flow_run_name="rollback-{deployment}", persist_result=False)
def rollback(
    deployment: str,
    who: str,
    reason: str,
    to: str | None = None,
    channel: str | None = None,
    config: pathlib.Path | None = None,
) -> Any:
    """Put an earlier version of a deployment's channel in force again.

    The next retune asks a person before it replaces a version that was rolled back to.

    Args:
        deployment: its name in the deployments file.
        who: who does it, for the record.
        reason: why, for the record.
        to: a version of the channel's history; by default the one before.
        channel: by default the deployment's live channel.
        config: the deployments file; by default the one that TABLETUNE_DEPLOYMENTS names.
    """
    wanted = prepare.read_deployment(config or deployments_path(), deployment)
    store = prepare.existing_store_of(wanted)
    where = channel or wanted.channels.live
    move = promotion.roll_back(store, where, who, reason, to)
    version = move.pointer.table_version
    track.mirror_aliases(wanted.name, store, wanted.channels.live, wanted.channels.canary)
    said = "rolled back to" if move.moved else "already on"
    message = f"{deployment}: {where} {said} {version[:12]} by {who}: {reason}"
    publish.publish_text(f"{deployment}-rollback", publish.listed(message, move.notes))
    return ended("Rolled back" if move.moved else "Unchanged", message, version=version)
