"""Finding a fingerprint record by the name that other records use for it."""

import contextlib

from tabletune.records.base import RecordError
from tabletune.records.fingerprint import Fingerprint
from tabletune.store.base import Store
from tabletune.store.errors import BadName, ObjectCorrupt, ObjectMissing


def find_fingerprint(store: Store, name: str) -> Fingerprint:
    """The fingerprint record named `name`.

    Other records name a fingerprint by its identity, which leaves the labels out, so the same
    identity may be stored several times with different labels; any of them will do. A name
    that is the record's content hash is understood too. A promotion puts the record without
    labels beside the others, under the identity itself, so that who cannot list finds it too.

    Raises:
        ObjectMissing: the store has none; put the Fingerprint record beside what it is for.
    """
    with contextlib.suppress(ObjectMissing, ObjectCorrupt, RecordError, BadName):
        return store.get(Fingerprint, name)
    for stored in sorted(store.list(Fingerprint), key=lambda other: other != name):
        try:
            fingerprint = store.get(Fingerprint, stored)
        except (ObjectCorrupt, RecordError):
            continue  # another copy may be intact; `problems` reports this one
        if name in (stored, fingerprint.identity):
            return fingerprint
    raise ObjectMissing(Fingerprint.KIND, name, "the store")


def find_labelled(store: Store, name: str) -> Fingerprint:
    """A record of the fingerprint `name` that names its model, for people and commands.

    Raises:
        ObjectMissing: every record of it that can be read is without labels, or there is none.
    """
    for stored in store.list(Fingerprint):
        with contextlib.suppress(ObjectMissing, ObjectCorrupt, RecordError):
            fingerprint = store.get(Fingerprint, stored)
            if fingerprint.model.label and name in (stored, fingerprint.identity):
                return fingerprint
    raise ObjectMissing(Fingerprint.KIND, name, "the store")


def same_fingerprint(store: Store, left: str, right: str) -> bool:
    """Whether two names mean the same facts; a name without its record equals only itself."""
    if left == right:
        return True
    try:
        return find_fingerprint(store, left).matches(find_fingerprint(store, right))
    except ObjectMissing:
        return False
