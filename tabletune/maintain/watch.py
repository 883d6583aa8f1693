"""Looks cheaply whether a deployment's table is still the right one.

Nothing is booted and, while nothing changed, no process started: the facts of engines and
models are kept while their files look the same (known_facts.py).
"""

import pathlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from tabletune.identity.artifact import ArtifactError
from tabletune.maintain.confirmed import read_confirmed
from tabletune.maintain.deployments import Deployment
from tabletune.maintain.drift import drift
from tabletune.maintain.gates import parse_moment
from tabletune.maintain.known_facts import engine_facts, model_facts, model_part
from tabletune.maintain.watch_state import KnownVersion, WatchState
from tabletune.measure.clock import Clock
from tabletune.measure.environments import EngineEnvironments
from tabletune.measure.installed_engine import EnvironmentProblem, InstalledEngine
from tabletune.measure.probe import ProbeError
from tabletune.pipeline.identify import fingerprint_of, needs_weights
from tabletune.pipeline.request_checks import RequestError
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.base import RecordError
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.pointer import Pointer
from tabletune.records.snapshot import LiveSnapshot
from tabletune.records.table import TableVersion
from tabletune.store.base import Store
from tabletune.store.errors import ObjectMissing, StoreError
from tabletune.store.fingerprints import find_fingerprint
from tabletune.store.snapshots import SnapshotReader

ChangeKind = Literal["first", "fingerprint", "objective", "age", "drift"]

#: What goes wrong with one deployment and must not stop the look at the others.
TROUBLE = (
    ArtifactError,
    EnvironmentProblem,
    ProbeError,
    RequestError,
    StoreError,
    RecordError,
    OSError,
)


@dataclass(frozen=True)
class Change:
    """Why a deployment needs attention, in words."""

    kind: ChangeKind
    words: str


@dataclass(frozen=True)
class WatchResult:
    """What a look at one deployment found.

    Attributes:
        changes: why it is to be tuned again; empty when nothing is to be done.
        fresh: whether measurements that are still valid for the fingerprint must be made
            anew, because of their age or of drift.
        problem: why it could not be looked at; empty if it could.
        fingerprint: identity of what the deployment is now.
        table_version: in force on the live channel, empty for none.
        age_d: days since the table was last found right; None without one.
        notes: what is no reason to tune, but should be known.
    """

    deployment: str
    changes: tuple[Change, ...] = ()
    problem: str = ""
    engine: pathlib.Path | None = None
    fingerprint: str = ""
    table_version: str = ""
    age_d: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def retune(self) -> bool:
        return bool(self.changes)

    @property
    def fresh(self) -> bool:
        return any(change.kind in ("age", "drift") for change in self.changes)


def watch(
    deployment: Deployment,
    store: Store,
    state: WatchState,
    environments: EngineEnvironments,
    clock: Clock,
    snapshots: SnapshotReader | None = None,
) -> WatchResult:
    """Look at one deployment; never raises for what is wrong with it alone.

    Args:
        state: changed in place; give the same one for all deployments.
        environments: where engine environments are.
        snapshots: of the live channel, to notice drift; None leaves that out.
    """
    try:
        return _Look(deployment, store, state, environments, clock).result(snapshots)
    except TROUBLE as error:
        return WatchResult(deployment.name, problem=f"{type(error).__name__}: {error}")


def present_engine(
    deployment: Deployment, environments: EngineEnvironments, serving_version: str = ""
) -> pathlib.Path:
    """The Python of the engine that the deployment runs on today.

    For ``latest`` that is the version that its table in force was measured on, while it is
    installed; a newer one comes in by an upgrade, which compares both. Without a table in
    force it is the newest that is installed.

    Raises:
        EnvironmentProblem: it is not installed.
    """
    name = deployment.environment
    if name is not None:
        path = pathlib.Path(name)
        return path if path.is_absolute() and path.is_file() else environments.resolve(name).python
    installed = [one for one in environments.list() if one.distribution == deployment.distribution]
    serving = [one for one in installed if one.version == serving_version]
    if not installed:
        raise EnvironmentProblem(
            f"expected an installed {deployment.distribution} for {deployment.name!r}, found none "
            f"in {str(environments.root)!r}; run an upgrade, or: tabletune engine create"
        )
    return max(serving or installed, key=version_order).python


def version_order(engine: InstalledEngine) -> tuple[object, str]:
    """Sorts engines by version, and by name where versions are equal."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(engine.version), engine.name
    except InvalidVersion:
        return Version("0"), engine.name


class _Look:
    def __init__(
        self,
        deployment: Deployment,
        store: Store,
        state: WatchState,
        environments: EngineEnvironments,
        clock: Clock,
    ) -> None:
        self._deployment, self._store, self._state = deployment, store, state
        self._environments, self._clock = environments, clock
        self._now = parse_moment(clock.utc()) or datetime.now(UTC)
        self._notes: list[str] = []

    def result(self, snapshots: SnapshotReader | None) -> WatchResult:
        pointer, _ = self._store.read_pointer(self._deployment.channels.live)
        engine = present_engine(self._deployment, self._environments, self._serving(pointer))
        now = self._fingerprint(engine)
        changes: list[Change] = []
        age_d = None
        if pointer is None:
            changes.append(Change("first", "there is no table in force"))
        else:
            version = self._version(pointer.table_version)
            changes += self._changed(pointer, now)
            changes += self._objective(version)
            age_d = self._age_d(pointer, version, now)
            if age_d > self._deployment.max_age_d:
                words = f"last found right {age_d:.1f} days ago"
                changes.append(Change("age", f"{words}, more than {self._deployment.max_age_d:g}"))
            if snapshots is not None:
                found = self._drift(snapshots, pointer, version)
                changes += [Change("drift", words) for words in found]
        return WatchResult(
            deployment=self._deployment.name,
            changes=tuple(changes),
            engine=engine,
            fingerprint=now.identity,
            table_version=pointer.table_version if pointer else "",
            age_d=age_d,
            notes=tuple(self._notes),
        )

    def _serving(self, pointer: Pointer | None) -> str:
        """The engine version of the table in force; only needed for ``latest``."""
        if pointer is None or self._deployment.environment is not None:
            return ""
        try:
            return find_fingerprint(self._store, pointer.fingerprint).engine.version
        except ObjectMissing:
            return ""

    def _fingerprint(self, python: pathlib.Path) -> Fingerprint:
        request = self._deployment.run_request(str(python))
        weights = needs_weights(request)
        model = model_facts(self._state, request.model, weights)
        drafter = None
        if request.drafter:
            drafter = model_facts(self._state, request.drafter, weights)
        facts = engine_facts(self._state, python)
        return fingerprint_of(request, facts, model.facts, model_part(drafter), model.dtype)

    def _version(self, name: str) -> KnownVersion:
        known = self._state.versions.get(name)
        if known is None:
            version = self._store.get(TableVersion, name)
            known = KnownVersion(
                created_at=version.created_at,
                objective=version.objective,
                max_tpot_s=version.max_tpot_s,
                acceptance_prior=version.parents.acceptance_prior,
            )
            self._state.versions[name] = known
        return known

    def _changed(self, pointer: Pointer, now: Fingerprint) -> Iterator[Change]:
        if pointer.fingerprint == now.identity:
            return
        try:
            before = find_fingerprint(self._store, pointer.fingerprint)
        except ObjectMissing:
            yield Change("fingerprint", "what the table was measured on is not in the store")
            return
        for words in before.differences(now):
            yield Change("fingerprint", words)

    def _objective(self, version: KnownVersion) -> Iterator[Change]:
        limit_ms = self._deployment.max_tpot_ms
        wanted = None if limit_ms is None else limit_ms / 1e3
        if wanted != version.max_tpot_s:
            yield Change("objective", f"limit per token: {version.max_tpot_s} s → {wanted} s")

    def _age_d(self, pointer: Pointer, version: KnownVersion, now: Fingerprint) -> float:
        moments = [parse_moment(version.created_at)]
        confirmed = read_confirmed(pathlib.Path(self._deployment.out))
        if confirmed is not None and confirmed.table_version == pointer.table_version:
            moments.append(
                parse_moment(confirmed.at) if confirmed.fingerprint == now.identity else None
            )
        ages = [(self._now - moment) / timedelta(days=1) for moment in moments if moment]
        skew_d = self._deployment.gate.clock_skew_s / 86400
        if any(age < -skew_d for age in ages):
            self._notes.append("its date lies in the future; check the clocks")
        # What is dated in the future must not stay young for ever: it counts as never seen.
        return min((max(age, 0.0) for age in ages if age >= -skew_d), default=float("inf"))

    def _drift(
        self, snapshots: SnapshotReader, pointer: Pointer, version: KnownVersion
    ) -> tuple[str, ...]:
        name, policy = self._deployment.name, self._deployment.drift
        now_s = self._now.timestamp()
        since_s = now_s - self._state.drift_at.get(name, -float("inf"))
        if 0 <= since_s < policy.every_h * 3600:
            return self._state.drift.get(name, ())
        channel = self._deployment.channels.live
        try:
            prior = self._store.get(AcceptancePrior, version.acceptance_prior)
            report = drift(
                policy,
                prior,
                list(_some_snapshots(snapshots, channel, policy.most_engines, now_s)),
                pointer.fingerprint,
                now_s,
            )
        except (StoreError, RecordError) as error:
            self._notes.append(f"drift cannot be told: {error}")
            return ()
        self._notes += report.notes
        self._state.drift_at[name] = now_s
        self._state.drift[name] = report.words()
        return report.words()


def _some_snapshots(
    snapshots: SnapshotReader, channel: str, most: int, now_s: float
) -> Iterator[LiveSnapshot]:
    """At most `most` of them; of more, others each hour."""
    names = snapshots.list_snapshots(channel)
    if len(names) > most:
        hour = int(now_s // 3600)
        names = tuple(sorted(names, key=lambda name: zlib.crc32(f"{hour} {name}".encode())))[:most]
    for name in names:
        try:
            yield snapshots.read_snapshot(channel, name)
        except (ObjectMissing, RecordError):
            continue
