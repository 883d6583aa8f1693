"""Tasks about engine environments."""

import pathlib
from dataclasses import dataclass

from tabletune.maintain.deployments import Deployment
from tabletune.measure.environments import EngineEnvironments
from tabletune_tasks.calls import library_task
from tabletune_tasks.run_progress import run_logger

#: Making an environment downloads gigabytes.
MAKING_S = 3 * 3600.0
#: What tells a requirement from a name or a path.
REQUIREMENT_SIGNS = "=<>~! "


@dataclass(frozen=True)
class CandidateEngine:
    """An engine environment to compare with today's, and what it is, in words."""

    environment: str
    words: str


@library_task("candidate engine", timeout_s=MAKING_S)
def candidate_engine(
    deployment: Deployment, wanted: str, engine_root: pathlib.Path
) -> CandidateEngine:
    """The environment that `wanted` names, made when it is a requirement and not there yet."""
    environments = EngineEnvironments(engine_root)
    if not any(sign in wanted for sign in REQUIREMENT_SIGNS):
        found = environments.resolve(wanted)
        return CandidateEngine(str(found.python), f"engine {found.name}")
    made = environments.create(wanted, progress=lambda line: run_logger().info("%s", line))
    state = "reused" if made.reused else "made"
    return CandidateEngine(made.facts.name, f"engine {made.facts.name} ({state})")
