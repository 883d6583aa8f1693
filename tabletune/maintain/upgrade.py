"""Which engine version is to be tried beside today's, and the environments of both."""

import pathlib
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from packaging.version import InvalidVersion, Version

from tabletune.maintain.deployments import LATEST, Deployment
from tabletune.maintain.watch import present_engine
from tabletune.measure.engine_install import exact_version, parse_requirement
from tabletune.measure.environments import EngineEnvironment, EngineEnvironments, default_name
from tabletune.measure.uvtool import Progress, UvFailed, run_uv, silent

#: Asks the package index: a distribution's newest version that this Python can install.
AskIndex = Callable[[str, bool], str]

_UNREACHABLE: Final = (
    "dns error",
    "failed to fetch",
    "error sending request",
    "connection refused",
    "could not connect",
    "connection reset",
    "timed out",
    "offline",
    "network was disabled",
)


class IndexUnreachable(RuntimeError):
    """The package index gave no answer. Attributes: distribution, reason."""

    def __init__(self, distribution: str, reason: str) -> None:
        self.distribution, self.reason = distribution, reason
        super().__init__(
            f"expected the newest version of {distribution} from the package index, found no "
            f"answer ({reason}); nothing was changed: check the network, or name the version in "
            f"the deployment's `engine`"
        )


@dataclass(frozen=True)
class UpgradeCandidate:
    """What an upgrade would try.

    Attributes:
        requirement: to make its environment with, such as ``vllm==0.34.0``; empty where there
            is nothing to try.
        today, newest: versions; `newest` is empty where it was not asked for.
        reason: in words, why there is a candidate or none.
    """

    requirement: str
    today: str
    newest: str
    reason: str

    @property
    def exists(self) -> bool:
        return bool(self.requirement)


def find_candidate(
    deployment: Deployment,
    today: str,
    ask: AskIndex | None = None,
    prereleases: bool = False,
) -> UpgradeCandidate:
    """The version that a deployment should be tried on beside today's.

    For ``latest`` that is the newest of the package index, for a requirement that pins a
    version that one; in both cases only if today's table was measured on another, and for
    ``latest`` on an older one.

    Args:
        today: the engine version of the table in force, empty for none.
        ask: by default through uv, which knows the index, the proxy and the platform.

    Raises:
        IndexUnreachable: the index gave no answer.
        UvFailed: it has no version that can be installed here.
    """
    if deployment.engine != LATEST:
        pinned = deployment.pinned_version
        if pinned is None:
            reason = f"the engine {deployment.engine!r} names no version to upgrade to"
            return UpgradeCandidate("", today, "", reason)
        requirement, wanted, why = deployment.engine, pinned, "the deployment asks for it"
    else:
        wanted = (ask or newest_version)(deployment.distribution, prereleases)
        requirement, why = f"{deployment.distribution}=={wanted}", "the newest of the index"
        if today and _newer(today, wanted):
            return UpgradeCandidate("", today, wanted, f"{wanted} is older than today's {today}")
    if today and _same(wanted, today):
        return UpgradeCandidate("", today, wanted, f"{wanted} is today's already ({why})")
    before = f"today's table was measured on {today}" if today else "there is no table yet"
    return UpgradeCandidate(requirement, today, wanted, f"{why}; {before}")


def make_beside(
    candidate: UpgradeCandidate, environments: EngineEnvironments, progress: Progress = silent
) -> EngineEnvironment:
    """The candidate's environment, made or reused; today's is not touched.

    One of that name that a person entered, and that has this version, is used as it is.

    Raises:
        ValueError: there is no candidate.
        UvFailed, EnvironmentProblem: it cannot be made; see there.
    """
    if not candidate.exists:
        raise ValueError(f"expected a candidate, found none: {candidate.reason}")
    requirement = parse_requirement(candidate.requirement)
    for one in environments.list():
        entered = one.name == default_name(candidate.requirement) and not one.owned
        if entered and (one.distribution, one.version) == (
            requirement.name,
            exact_version(requirement),
        ):
            return EngineEnvironment(one, reused=True)
    return environments.create(candidate.requirement, progress=progress)


def todays_engine(
    deployment: Deployment,
    serving_version: str,
    environments: EngineEnvironments,
    progress: Progress = silent,
) -> pathlib.Path:
    """The Python of the engine that today's table was measured on, to compare a candidate with.

    A requirement that moved names the candidate, not today's engine: that one is found by its
    version, and made again where it was removed.

    Args:
        serving_version: of the table in force.

    Raises:
        UvFailed, EnvironmentProblem: it is not there and cannot be made.
    """
    pinned = deployment.pinned_version
    if not serving_version or pinned is None or _same(pinned, serving_version):
        return present_engine(deployment, environments, serving_version)
    for one in environments.list():
        if one.distribution == deployment.distribution and _same(one.version, serving_version):
            return one.python
    requirement = f"{deployment.distribution}=={serving_version}"
    return environments.create(requirement, progress=progress).python


def newest_version(
    distribution: str, prereleases: bool = False, environment: Mapping[str, str] | None = None
) -> str:
    """The newest version that uv would install here, without installing anything.

    Raises:
        IndexUnreachable: the index gave no answer.
        UvMissing, UvFailed: there is no uv, or no version that fits.
    """
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tabletune-") as name:
        wanted = pathlib.Path(name) / "wanted.in"
        wanted.write_text(distribution + "\n")
        arguments = ["pip", "compile", "--no-deps", "--no-header", "--no-annotate", "--refresh"]
        arguments += ["--prerelease", "allow" if prereleases else "disallow", str(wanted)]
        try:
            run_uv(arguments, lines.append, environment)
        except UvFailed as error:
            said = [line for line in error.tail if any(m in line.lower() for m in _UNREACHABLE)]
            if said:
                raise IndexUnreachable(distribution, said[-1].strip()) from error
            raise
    pattern = re.compile(rf"{re.escape(distribution)}==(\S+)")
    found = [match.group(1) for line in lines if (match := pattern.fullmatch(line.strip()))]
    if len(found) != 1:
        raise UvFailed(f"uv pip compile {distribution}", 0, lines or ["no output"])
    return found[0]


def _same(left: str, right: str) -> bool:
    try:
        return Version(left) == Version(right)
    except InvalidVersion:
        return left == right


def _newer(left: str, right: str) -> bool:
    try:
        return Version(left) > Version(right)
    except InvalidVersion:
        return left != right
