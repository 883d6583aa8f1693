"""Tasks that read what is to be maintained and identify it."""

import pathlib
from collections.abc import Sequence

from tabletune.maintain.deployments import Deployment, load_deployments
from tabletune.maintain.watch import present_engine
from tabletune.measure.clock import SystemClock
from tabletune.measure.environments import EngineEnvironments
from tabletune.pipeline.identify import identify_target
from tabletune.pipeline.request_checks import RequestError
from tabletune.pipeline.reuse import Reuse
from tabletune.pipeline.staged_run import StagedRun
from tabletune.pipeline.workspace import Workspace
from tabletune.records.table import TableVersion
from tabletune.store.base import Store
from tabletune.store.errors import ObjectMissing
from tabletune.store.fingerprints import find_fingerprint
from tabletune.store.opening import open_existing, open_store
from tabletune_tasks.calls import library_task
from tabletune_tasks.run_progress import RunProgress


class NoSuchDeployment(RequestError):
    """The file names no such deployment."""

    def __init__(self, name: str, path: pathlib.Path | None, known: tuple[str, ...]) -> None:
        self.name, self.path = name, path
        some = ", ".join(known[:10]) + (" …" if len(known) > 10 else "")
        place = path or "the deployments file"
        super().__init__("deployment", f"one of {place} ({some})", name, "correct its name")


@library_task("read deployments", timeout_s=60)
def read_deployments(path: pathlib.Path) -> tuple[Deployment, ...]:
    """All deployments of the file."""
    return load_deployments(path)


@library_task("read deployment", timeout_s=60)
def read_deployment(path: pathlib.Path, name: str) -> Deployment:
    """One deployment of the file."""
    return named(load_deployments(path), name, path)


def named(every: Sequence[Deployment], name: str, path: pathlib.Path | None) -> Deployment:
    """The deployment of that name.

    Raises:
        NoSuchDeployment: there is none; `path` is the file that should have it.
    """
    found = next((one for one in every if one.name == name), None)
    if found is None:
        raise NoSuchDeployment(name, path, tuple(one.name for one in every))
    return found


@library_task("identify", timeout_s=600)
def identify(
    deployment: Deployment,
    engine: str | None,
    engine_root: pathlib.Path,
    fresh: bool = False,
    revalidate: bool = False,
) -> StagedRun:
    """The run of a deployment: its engine, device and models identified, its store checked.

    `engine`: an environment's name or path; None takes the deployment's own.
    """
    store = open_store(deployment.store)
    environments = EngineEnvironments(engine_root)
    python = (
        environments.resolve(engine).python
        if engine
        else present_engine(deployment, environments, serving_version(store, deployment))
    )
    request, drift = deployment.run_request(str(python)), deployment.drift
    run = StagedRun(
        request,
        identify_target(request, python),
        Workspace(pathlib.Path(deployment.out)),
        store,
        SystemClock(),
        RunProgress(deployment.name),
        fresh,
        revalidate,
        reuse=_reuse(deployment),
        harvest_max_age_d=drift.harvest_max_age_d if drift.use_harvest else 0.0,
    )
    run.check_store()
    return run


def _reuse(deployment: Deployment) -> Reuse:
    """No older than the gate lets through; the gate would refuse it for ever otherwise."""
    gate = deployment.gate
    return Reuse(gate.evidence_max_age_d * 86400, gate.verdict_max_age_h * 3600, gate.clock_skew_s)


@library_task("open store", timeout_s=120)
def store_of(deployment: Deployment) -> Store:
    """The deployment's table store, which its first retune makes."""
    return open_store(deployment.store)


@library_task("open the store that is there", timeout_s=120)
def existing_store_of(deployment: Deployment) -> Store:
    """The deployment's table store, for what makes no sense without one.

    Raises:
        NoStore: nothing was ever promoted there.
    """
    return open_existing(deployment.store)


def serving_version(store: Store, deployment: Deployment) -> str:
    """The engine version that the table in force was measured on; empty where none is known."""
    pointer, _ = store.read_pointer(deployment.channels.live)
    if pointer is None:
        return ""
    try:
        return find_fingerprint(store, pointer.fingerprint).engine.version
    except ObjectMissing:
        return ""


class NoSuchVersion(RequestError):
    """No channel and no single version has that name."""

    def __init__(self, name: str, found: str) -> None:
        self.name = name
        super().__init__("version", "a channel or the beginning of one version's hash", name, found)


@library_task("find version", timeout_s=120)
def find_version(store: Store, name: str) -> tuple[str, TableVersion]:
    """A table version by channel, hash or the hash's beginning: its hash and itself."""
    if name in store.channels():
        pointer, _ = store.read_pointer(name)
        if pointer is not None:
            return pointer.table_version, store.get(TableVersion, pointer.table_version)
    found = [one for one in store.list(TableVersion) if len(name) >= 4 and one.startswith(name)]
    if len(found) != 1:
        raise NoSuchVersion(name, f"{len(found)} versions begin with it")
    return found[0], store.get(TableVersion, found[0])
