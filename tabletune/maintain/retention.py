"""What may be removed from a store: what nobody can need any more. Planning is apart from doing.

Kept are, with everything that they name: the last versions of each channel, the one in force
among them; versions that were in force during the last days; what the snapshot of an engine
names that was seen lately; the newest harvest of what is served; and whatever is younger than
some days, because a run that is still going puts records first and moves a pointer last. Of
every version that was ever in force, the version itself and its verdict stay, so that histories
can be read and a roll-back to it remains possible; what goes of old ones is the bulk, the
measurements.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tabletune.maintain.gates import parse_moment
from tabletune.maintain.policies import RetentionPolicy
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.base import Record, RecordError
from tabletune.records.decision_record import PromotionDecision
from tabletune.records.qualification import Qualification
from tabletune.records.snapshot import LiveSnapshot
from tabletune.records.step_profile import Profile
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store.base import Store
from tabletune.store.errors import ObjectCorrupt, ObjectMissing
from tabletune.store.snapshots import SnapshotReader

#: Kinds that are removed, and the field with their date. Fingerprints, plans and pointers are
#: small, have no date and explain what is left: they stay.
DATED: Final[dict[type[Record], str]] = {
    TableVersion: "created_at",
    Verdict: "validated_at",
    Profile: "measured_at",
    AcceptancePrior: "measured_at",
    Qualification: "qualified_at",
    PromotionDecision: "decided_at",
}
_USUAL: Final = RetentionPolicy()


@dataclass(frozen=True)
class RetentionPlan:
    """What would be removed.

    Attributes:
        remove: kind and name of each record.
        forget: snapshots of engines that are no more.
        kept: how many stay of the kinds of records that could be removed.
        notes: what could not be read and so stays.
    """

    remove: tuple[tuple[type[Record], str], ...]
    forget: tuple[LiveSnapshot, ...]
    kept: int
    notes: tuple[str, ...] = ()

    def words(self, verb: str = "to remove") -> tuple[str, ...]:
        """How many of which kind, in words; then the notes."""
        counts: dict[str, int] = {}
        for kind in [kind for kind, _ in self.remove] + [LiveSnapshot for _ in self.forget]:
            counts[kind.KIND] = counts.get(kind.KIND, 0) + 1
        removed = [f"{count} of {kind}" for kind, count in sorted(counts.items())]
        return (f"{verb}: {', '.join(removed) or 'nothing'}; kept: {self.kept}", *self.notes)


@dataclass
class _Needed:
    """Names that must stay: `names` with all that they name, `alone` without. `served`:
    fingerprints in force. `open`: a history or snapshot could not be read, so everything must."""

    names: set[str] = field(default_factory=set[str])
    served: set[str] = field(default_factory=set[str])
    alone: set[str] = field(default_factory=set[str])
    notes: list[str] = field(default_factory=list[str])
    open: bool = False


def plan_retention(
    store: Store,
    snapshots: Sequence[LiveSnapshot],
    damaged_snapshots: Sequence[str],
    now: datetime,
    policy: RetentionPolicy = _USUAL,
) -> RetentionPlan:
    """What may go.

    Args:
        snapshots: of all channels.
        damaged_snapshots: names of those that could not be read: with one, nothing is
            removed, since an engine may run what it names.

    Raises:
        StoreError: the store cannot be read.
    """
    needed = _Needed(open=bool(damaged_snapshots))
    if damaged_snapshots:
        some = ", ".join(damaged_snapshots[:5]) + (" …" if len(damaged_snapshots) > 5 else "")
        needed.notes.append(
            f"{len(damaged_snapshots)} live snapshots cannot be read: nothing is removed; delete "
            f"them if their engines are no more: {some}"
        )
    for channel in store.channels():
        since = _days_before(now, policy.history_days)
        _keep_history(store, channel, needed, since, policy.keep_versions)
    oldest_s = _days_before(now, policy.engine_days).timestamp()
    gone = tuple(one for one in snapshots if one.to_unix_s < oldest_s)
    needed.names |= {one.table_version for one in snapshots if one.to_unix_s >= oldest_s}
    records = list(_records(store, needed))
    _keep_young(records, needed, _days_before(now, policy.young_days))
    _keep_harvests(records, needed)
    _keep_named(records, needed)
    if needed.open:
        return RetentionPlan((), (), len(records), tuple(needed.notes))
    stay = needed.names | needed.alone
    remove = tuple((kind, name) for kind, name, _ in records if name not in stay)
    return RetentionPlan(remove, gone, len(records) - len(remove), tuple(needed.notes))


def _days_before(now: datetime, days: float) -> datetime:
    """So many days before `now`; the first moment there is where they reach back further."""
    first = datetime.min.replace(tzinfo=UTC)
    return first if days >= (now - first) / timedelta(days=1) else now - timedelta(days=days)


def apply_retention(store: Store, plan: RetentionPlan, reader: SnapshotReader) -> int:
    """Remove what was planned; may be repeated and broken off. Returns how many there were.

    What the pointers name *now* is looked at again before each record goes: a promotion or
    roll-back may have come in between. So is each snapshot: its engine may be back.
    """
    removed = 0
    for kind, name in plan.remove:
        if name not in _in_force(store):
            store.remove(kind, name)
            removed += 1
    for old in plan.forget:
        with contextlib.suppress(ObjectMissing):
            if reader.read_snapshot(old.channel, old.engine.run_id) == old:
                reader.remove_snapshot(old.channel, old.engine.run_id)
                removed += 1
    return removed


def _in_force(store: Store) -> set[str]:
    names: set[str] = set()
    for channel in store.channels():
        pointer, _ = store.read_pointer(channel)
        if pointer is None:
            continue
        names |= {pointer.table_version, pointer.verdict, pointer.previous_version}
        parents = store.get(TableVersion, pointer.table_version).parents
        names |= set(parents.model_dump().values())
    return names


def _keep_history(
    store: Store, channel: str, needed: _Needed, since: datetime, versions: int
) -> None:
    """The last `versions` different versions, and those that were in force since `since`."""
    replaced_at: datetime | None = None
    last: set[str] = set()
    try:
        for state in store.history(channel):
            needed.alone |= {state.table_version, state.verdict}
            if not last:
                needed.served.add(state.fingerprint)
            if len(last) < versions:
                last.add(state.table_version)
            recent = replaced_at is None or replaced_at >= since
            if recent or state.table_version in last:
                needed.names |= {state.table_version, state.verdict}
            replaced_at = parse_moment(state.moved_at)
    except (ObjectMissing, ObjectCorrupt, RecordError) as error:
        needed.open = True
        needed.notes.append(
            f"the history of {channel} cannot be read: nothing is removed ({error})"
        )


def _records(store: Store, needed: _Needed) -> Iterator[tuple[type[Record], str, Any]]:
    for kind in DATED:
        for name in store.list(kind):
            try:
                yield kind, name, store.get(kind, name)
            except ObjectMissing:
                continue
            except (ObjectCorrupt, RecordError) as error:
                needed.names.add(name)
                needed.notes.append(f"{kind.KIND} {name[:12]} cannot be read and stays: {error}")


def _keep_young(
    records: Sequence[tuple[type[Record], str, Any]], needed: _Needed, since: datetime
) -> None:
    for kind, name, record in records:
        moment = parse_moment(getattr(record, DATED[kind]))
        if moment is None or moment >= since:
            needed.names.add(name)


def _keep_harvests(records: Sequence[tuple[type[Record], str, Any]], needed: _Needed) -> None:
    """The newest prior from live traffic of each fingerprint in force: the next retune's."""
    newest: dict[str, tuple[str, str]] = {}
    for _, name, record in records:
        if isinstance(record, AcceptancePrior) and record.from_live_traffic:
            found = (record.measured_at, name)
            newest[record.fingerprint] = max(found, newest.get(record.fingerprint, found))
    needed.names |= {name for key, (_, name) in newest.items() if key in needed.served}


def _keep_named(records: Sequence[tuple[type[Record], str, Any]], needed: _Needed) -> None:
    """Whatever a kept record names stays too."""
    by_name = {name: record for _, name, record in records}
    waiting = [name for name in needed.names if name in by_name]
    while waiting:
        named = set(_names_in(by_name[waiting.pop()])) - needed.names
        needed.names |= named
        waiting += [name for name in named if name in by_name]


def _names_in(record: Record) -> Iterator[str]:
    if isinstance(record, TableVersion):
        yield from (name for name in record.parents.model_dump().values() if name)
    elif isinstance(record, Verdict):
        yield from (record.table_version, record.incumbent_version)
    elif isinstance(record, PromotionDecision):
        yield from (record.to_version, record.from_version, record.answers)
        yield from (one.name for one in record.evidence)
