"""compare: two table versions side by side, in words and in MLflow."""

import pathlib
from typing import Any

from prefect import flow

from tabletune_flows.outcomes import ended
from tabletune_flows.settings import deployments_path
from tabletune_tasks import prepare, publish, track


@flow(name="compare", flow_run_name="compare-{deployment}", persist_result=False)
def compare(
    deployment: str,
    old: str = "live",
    new: str = "canary",
    config: pathlib.Path | None = None,
) -> Any:
    """Say how two table versions differ.

    Args:
        deployment: its name in the deployments file.
        old: a channel, or a version's hash or its beginning.
        new: another.
        config: the deployments file; by default the one that TABLETUNE_DEPLOYMENTS names.
    """
    wanted = prepare.read_deployment(config or deployments_path(), deployment)
    store = prepare.existing_store_of(wanted)
    first, before = prepare.find_version(store, old)
    second, after = prepare.find_version(store, new)
    page = track.comparison_page(wanted.name, (first, second))
    text = publish.publish_comparison(wanted.name, before, after, page)
    message = f"{deployment}: {first[:12]} and {second[:12]} compared"
    return ended("Compared", message, old=first, new=second, differences=text, page=page)
