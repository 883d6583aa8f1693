"""revalidate: whether the table in force is still right, by measuring again."""

import pathlib
from typing import Any

from prefect import flow

from tabletune_flows.measuring import identified, measured, told
from tabletune_flows.outcomes import ended
from tabletune_flows.settings import deployments_path
from tabletune_tasks import prepare, promotion


@flow(name="revalidate", flow_run_name="revalidate-{deployment}", persist_result=False)
def revalidate(
    deployment: str, config: pathlib.Path | None = None, engine: str | None = None
) -> Any:
    """Measure everything again and compare the table in force with what comes out.

    Promotes nothing. A table that is no longer right shows as the outcome `Outdated` and sends
    the event that starts a retune.

    Args:
        deployment: its name in the deployments file.
        config: the deployments file; by default the one that TABLETUNE_DEPLOYMENTS names.
        engine: an engine environment's name or path, in place of the deployment's own.
    """
    wanted = prepare.read_deployment(config or deployments_path(), deployment)
    run = identified(wanted, engine, fresh=True)
    measured(wanted, run)
    decision = promotion.ask_gate(wanted, run)
    why = decision.reasons
    if decision.outcome == "nothing_to_do":
        promotion.confirm_table(wanted, run)
        headline = "the table in force is still right"
        told(wanted, run, headline, why)
        return ended("Confirmed", f"{deployment}: {headline}", why)
    if decision.outcome == "refuse":
        headline = "nothing better was found"
        told(wanted, run, headline, why)
        return ended("Unclear", f"{deployment}: {headline}", why)
    headline = "another table is better now"
    told(wanted, run, headline, why)
    promotion.tell_drift(wanted, "; ".join(why))
    return ended(
        "Outdated",
        f"{deployment}: {headline}",
        why,
        version=run.build_made.version.content_hash,
    )
