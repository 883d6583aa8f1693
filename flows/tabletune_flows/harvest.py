"""harvest: what serving engines learnt, as a new prior and a report of drift."""

import pathlib
from typing import Any

from prefect import flow

from tabletune_flows.outcomes import ended
from tabletune_flows.settings import deployments_path
from tabletune_tasks import fleet, prepare, promotion, publish


@flow(name="harvest", flow_run_name="harvest-{deployment}", persist_result=False)
def harvest(deployment: str, config: pathlib.Path | None = None, start: bool = True) -> Any:
    """Pool the live snapshots of a deployment's engines.

    Args:
        deployment: its name in the deployments file.
        config: the deployments file; by default the one that TABLETUNE_DEPLOYMENTS names.
        start: send the event that starts a retune where live traffic has drifted.
    """
    wanted = prepare.read_deployment(config or deployments_path(), deployment)
    found = fleet.harvest_fleet(wanted, prepare.existing_store_of(wanted))
    message = f"{deployment}: {found.engines} engines, {len(found.drifted)} findings of drift"
    lines = [*found.drifted, *found.notes]
    publish.publish_text(f"{deployment}-harvest", publish.listed(message, lines))
    if found.drifted and start:
        promotion.tell_drift(wanted, "; ".join(found.drifted))
    return ended("Harvested", message, lines, prior=found.prior, drifted=list(found.drifted))
