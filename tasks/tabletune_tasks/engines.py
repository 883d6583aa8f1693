"""Tasks about engine environments."""

import functools
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

from tabletune.maintain.deployments import LATEST, Deployment
from tabletune.maintain.upgrade import (
    IndexUnreachable,
    UpgradeCandidate,
    find_candidate,
    make_beside,
    newest_version,
    todays_engine,
)
from tabletune.measure.environments import EngineEnvironments
from tabletune.measure.uvtool import UvFailed, UvMissing
from tabletune.store.errors import StoreError
from tabletune.store.opening import open_store
from tabletune_tasks.calls import library_task
from tabletune_tasks.prepare import serving_version
from tabletune_tasks.run_progress import run_logger

#: Making an environment downloads gigabytes.
MAKING_S = 3 * 3600.0
#: What tells a requirement from a name or a path.
REQUIREMENT_SIGNS = "=<>~! "


@dataclass(frozen=True)
class CandidateEngine:
    """An engine environment to compare with today's (empty for none), and why, in words."""

    environment: str
    words: str


@library_task("candidate engine", timeout_s=MAKING_S)
def candidate_engine(
    deployment: Deployment, wanted: str | None, engine_root: pathlib.Path
) -> CandidateEngine:
    """The environment of the candidate version, made where it is not there yet.

    `wanted`: a requirement, or an environment's name or path; None takes what the deployment
    asks for, for ``latest`` the newest version of the package index.
    """
    environments = EngineEnvironments(engine_root)

    def say(line: str) -> None:
        run_logger().info("%s", line)

    if wanted and not any(sign in wanted for sign in REQUIREMENT_SIGNS):
        found = environments.resolve(wanted)
        return CandidateEngine(str(found.python), f"engine {found.name}")
    if wanted:
        made = environments.create(wanted, progress=say)
        return CandidateEngine(made.facts.name, f"engine {made.facts.name}")
    candidate = find_candidate(
        deployment, serving_version(open_store(deployment.store), deployment)
    )
    if not candidate.exists:
        return CandidateEngine("", candidate.reason)
    made = make_beside(candidate, environments, say)
    return CandidateEngine(made.facts.name, f"engine {made.facts.name}: {candidate.reason}")


@library_task("today's engine", timeout_s=MAKING_S)
def engine_of_today(deployment: Deployment, engine_root: pathlib.Path) -> str:
    """The Python that today's table was measured with; empty where no table is in force."""
    version = serving_version(open_store(deployment.store), deployment)
    if not version:
        return ""

    def say(line: str) -> None:
        run_logger().info("%s", line)

    return str(todays_engine(deployment, version, EngineEnvironments(engine_root), say))


@library_task("look for upgrades", timeout_s=1800)
def upgrades(deployments: Sequence[Deployment]) -> list[tuple[Deployment, UpgradeCandidate]]:
    """The deployments that have another engine version to try beside today's.

    For ``latest`` the package index has a newer one, elsewhere the requirement has moved. The
    index is asked once for each distribution. Without an answer there are none today.
    """
    ask = functools.cache(newest_version)
    found: list[tuple[Deployment, UpgradeCandidate]] = []
    for deployment in deployments:
        if deployment.engine != LATEST and deployment.pinned_version is None:
            continue
        try:
            today = serving_version(open_store(deployment.store), deployment)
            candidate = find_candidate(deployment, today, ask) if today else None
        except (IndexUnreachable, UvFailed, UvMissing) as error:
            run_logger().warning("no upgrades today: %s", error)
            return found
        except StoreError as error:
            run_logger().warning("%s: %s", deployment.name, error)
            continue
        if candidate is not None and candidate.exists:
            found.append((deployment, candidate))
    return found
