"""What may be removed from a store: what nobody can need any more. Planning is apart from doing.

Kept are, with everything that they name: the version in force on each channel and the one
before it; versions that were in force during the last days; what a live snapshot names; and
whatever is younger than some days, because a run that is still going puts records first and
moves a pointer last. Of every version that was ever in force, the version itself and its
verdict stay, so that histories can be read and a roll-back to it remains possible; what goes of
old ones is the bulk, the measurements.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from tabletune.maintain.gates import parse_moment
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


@dataclass(frozen=True)
class RetentionPlan:
    """What would be removed.

    Attributes:
        remove: kind and name of each record.
        kept: how many stay of the kinds that could be removed.
        notes: what could not be read and so stays.
    """

    remove: tuple[tuple[type[Record], str], ...]
    kept: int
    notes: tuple[str, ...] = ()

    def words(self) -> tuple[str, ...]:
        """How many of which kind, in words."""
        counts: dict[str, int] = {}
        for kind, _ in self.remove:
            counts[kind.KIND] = counts.get(kind.KIND, 0) + 1
        removed = [f"{count} of {kind}" for kind, count in sorted(counts.items())]
        return (f"removed: {', '.join(removed) or 'nothing'}; kept: {self.kept}", *self.notes)


@dataclass
class _Needed:
    """Names that must stay: `names` with all that they name, `alone` without. `open`: a history
    or snapshot could not be read, so everything must."""

    names: set[str] = field(default_factory=set[str])
    alone: set[str] = field(default_factory=set[str])
    notes: list[str] = field(default_factory=list[str])
    open: bool = False


def plan_retention(
    store: Store,
    snapshots: Sequence[LiveSnapshot],
    damaged_snapshots: int,
    now: datetime,
    history_days: float = 90.0,
    young_days: float = 7.0,
) -> RetentionPlan:
    """What may go.

    Args:
        snapshots: of all channels.
        damaged_snapshots: how many could not be read: with one, nothing is removed, since
            an engine may run what it names.
        history_days: how long the measurements of a version that was in force stay after it was
            replaced.
        young_days: younger records stay, whoever names them.

    Raises:
        ValueError: `young_days` is less than one: a run may take hours.
        StoreError: the store cannot be read.
    """
    if young_days < 1:
        raise ValueError(f"expected young_days of 1 or more, found {young_days!r}")
    needed = _Needed(open=damaged_snapshots > 0)
    if damaged_snapshots:
        needed.notes.append(
            f"{damaged_snapshots} live snapshots cannot be read: nothing is removed"
        )
    for channel in store.channels():
        _keep_history(store, channel, needed, now - timedelta(days=history_days))
    needed.names |= {one.table_version for one in snapshots if one.table_version}
    records = list(_records(store, needed))
    _keep_young(records, needed, now - timedelta(days=young_days))
    _keep_named(records, needed)
    if needed.open:
        return RetentionPlan((), len(records), tuple(needed.notes))
    stay = needed.names | needed.alone
    remove = tuple((kind, name) for kind, name, _ in records if name not in stay)
    return RetentionPlan(remove, len(records) - len(remove), tuple(needed.notes))


def apply_retention(store: Store, plan: RetentionPlan) -> int:
    """Remove what was planned; may be repeated and broken off. Returns how many there were.

    What the pointers name *now* is looked at again before each record goes: a promotion or
    roll-back may have come in between.
    """
    removed = 0
    for kind, name in plan.remove:
        if name not in _in_force(store):
            store.remove(kind, name)
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


def _keep_history(store: Store, channel: str, needed: _Needed, since: datetime) -> None:
    """The state in force, the one before it, and those that were in force since `since`."""
    replaced_at: datetime | None = None
    try:
        for number, state in enumerate(store.history(channel)):
            needed.alone |= {state.table_version, state.verdict}
            if number < 2 or replaced_at is None or replaced_at >= since:
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
