"""Looks through a whole store for damage, for `doctor`."""

from typing import Final

from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.base import Record, RecordError
from tabletune.records.decision_record import PromotionDecision
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.plan import CapturePlan
from tabletune.records.pointer import Pointer
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile
from tabletune.records.table import Table, TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store.base import Store
from tabletune.store.errors import StoreError
from tabletune.store.fingerprints import find_fingerprint

#: Every kind of record that a store holds.
KINDS: Final[tuple[type[Record], ...]] = (
    AcceptancePrior,
    CapturePlan,
    Fingerprint,
    Pointer,
    Profile,
    PromotionDecision,
    Qualification,
    Table,
    TableVersion,
    Verdict,
)


def problems(store: Store) -> list[str]:
    """What is damaged or missing, in words; empty for a sound store.

    Reads and hashes every object, walks every channel's history, and looks whether the
    version in force, its verdict and its fingerprint are there.
    """
    found: list[str] = []
    for kind in KINDS:
        for name in store.list(kind):
            try:
                store.get(kind, name)
            except (StoreError, RecordError) as error:
                found.append(f"{kind.KIND} {name[:12]}: {error}")
    for channel in store.channels():
        try:
            for state in store.history(channel):
                if state.verdict:
                    store.get(Verdict, state.verdict)
                find_fingerprint(store, store.get(TableVersion, state.table_version).fingerprint)
        except (StoreError, RecordError) as error:
            found.append(f"channel {channel}: {error}")
    return found
