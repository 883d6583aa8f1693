"""upgrade: tune on a candidate engine version beside today's, and compare."""

import pathlib
from typing import Any

from prefect import flow

from tabletune.maintain.deployments import Deployment
from tabletune.pipeline.staged_run import StagedRun
from tabletune_flows.measuring import identified, measured, told
from tabletune_flows.outcomes import ended
from tabletune_flows.settings import deployments_path, engine_root
from tabletune_tasks import engines, prepare, publish, track


@flow(name="upgrade", flow_run_name="upgrade-{deployment}", persist_result=False)
def upgrade(
    deployment: str, candidate: str | None = None, config: pathlib.Path | None = None
) -> Any:
    """Measure a deployment on a newer engine version and on today's, and compare the tables.

    Promotes nothing: serving engines would have to be of the new version first. Once they are,
    retune finds everything measured.

    Args:
        deployment: its name in the deployments file.
        candidate: a requirement such as vllm==0.33.0, or an environment's name or path; by
            default what the deployment asks for, for `latest` the package index's newest.
        config: the deployments file; by default the one that TABLETUNE_DEPLOYMENTS names.
    """
    wanted = prepare.read_deployment(config or deployments_path(), deployment)
    found = engines.candidate_engine(wanted, candidate, engine_root())
    if not found.environment:
        return ended("Unchanged", f"{deployment}: no upgrade: {found.words}")
    before = engines.engine_of_today(wanted, engine_root())
    if not before:
        words = f"{found.words} is there; no table is in force to compare it with: run retune"
        return ended("Unchanged", f"{deployment}: {words}")
    today, today_passed = _tuned(wanted, before, "today's engine")
    new, new_passed = _tuned(wanted, found.environment, found.words)
    old, after = today.build_made.version, new.build_made.version
    page = track.comparison_page(wanted.name, (old.content_hash, after.content_hash))
    differences = publish.publish_comparison(wanted.name, old, after, page)
    passed = {"today": today_passed, "candidate": new_passed}
    message = f"{deployment}: {found.words}; passed: {passed}"
    return ended(
        "Upgrade compared",
        message,
        old=old.content_hash,
        new=after.content_hash,
        differences=differences,
        page=page,
        passed=passed,
    )


def _tuned(deployment: Deployment, engine: str, what: str) -> tuple[StagedRun, bool]:
    run = identified(deployment, engine)
    passed = measured(deployment, run)
    told(deployment, run, f"{what}: validation {'passed' if passed else 'failed'}, not promoted")
    return run, passed
