"""Loads what a pointer names and checks it: strict parse, hash, signature, fingerprint, fit.

The same checks run over the source and over the cache of before.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.base import MAX_RECORD_BYTES, Record, RecordError
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.pointer import Pointer
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile
from tabletune.records.table import TableVersion
from tabletune.store.base import parse_object
from tabletune.store.errors import ObjectCorrupt, ObjectMissing, PointerCorrupt, StoreError
from tabletune.store.layout import object_key, pointer_key
from tabletune.store.signing import TrustedKeys
from tabletune.store.source import Source
from tabletune_vllm.source.answers import NewVersion
from tabletune_vllm.source.checks import FingerprintCheck, fit_problems
from tabletune_vllm.source.engine_self import EngineSelf

MAX_POINTER_BYTES: Final = 64 * 1024
MAX_SMALL_BYTES: Final = 4 * 2**20

AnyRecord = TypeVar("AnyRecord", bound=Record)


class DoesNotFit(Exception):
    """The version is intact but not for this engine. Attributes: reasons."""

    def __init__(self, what: str, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__(f"{what}: {'; '.join(reasons)}")


@dataclass(frozen=True)
class Loaded:
    """A version that passed, and the bytes that it came from, by key. complete: every parent
    that the version names is there."""

    new: NewVersion
    objects: dict[str, bytes]
    complete: bool


@dataclass
class Loader:
    """Loads versions for one engine and one channel. keys: None where none are demanded."""

    channel: str
    engine: EngineSelf
    keys: TrustedKeys | None
    fingerprints: FingerprintCheck = field(init=False)

    def __post_init__(self) -> None:
        self.fingerprints = FingerprintCheck(self.engine)

    def pointer(self, source: Source, data: bytes) -> tuple[Pointer, str]:
        """The pointer in these bytes and its state's name, after checking that it was put in
        force there, and by whom.

        Raises:
            StoreError, RecordError: it is not what it should be.
        """
        pointer = Pointer.from_json(data)
        state = hashlib.sha256(data).hexdigest()
        where = f"{source.url}/{pointer_key(self.channel)}"
        stored = source.read(object_key(Pointer, state), MAX_POINTER_BYTES)
        if pointer.channel != self.channel or stored is None or stored.data != data:
            found = f"a state of channel {pointer.channel!r} that was never put in force here"
            raise PointerCorrupt(self.channel, where, found)
        if self.keys is not None:
            self.keys.check(data)
        return pointer, state

    def version(self, source: Source, pointer: Pointer) -> Loaded:
        """What the pointer names, fit for this engine.

        Raises:
            StoreError, RecordError: an object is lost, damaged or cannot be read.
            DoesNotFit: it is for another engine.
        """
        objects: dict[str, bytes] = {}
        version = _get(source, TableVersion, pointer.table_version, MAX_SMALL_BYTES, objects)
        fingerprint = _get(source, Fingerprint, version.fingerprint, MAX_SMALL_BYTES, objects)
        if pointer.fingerprint != version.fingerprint:
            reason = f"the pointer names fingerprint {pointer.fingerprint[:12]}"
            raise DoesNotFit("the version has another fingerprint", (reason,))
        found = self.fingerprints.findings(fingerprint)
        name = pointer.table_version[:12]
        if found.problems:
            raise DoesNotFit(f"version {name} was measured elsewhere", found.problems)
        problems = fit_problems(version, self.engine)
        if problems:
            raise DoesNotFit(f"version {name} does not fit this engine", problems)
        notes = list(found.notes)
        parents, own = version.parents, version.fingerprint
        profile = _parent(source, Profile, parents.profile, own, objects, notes)
        prior = _parent(source, AcceptancePrior, parents.acceptance_prior, own, objects, notes)
        qualification = _parent(source, Qualification, parents.qualification, own, objects, notes)
        new = NewVersion(
            name=pointer.table_version,
            version=version,
            pointer=pointer,
            fingerprint=fingerprint,
            profile=profile,
            prior=prior,
            qualification=qualification,
            notes=tuple(notes),
        )
        wanted = [parents.profile, parents.acceptance_prior, parents.qualification]
        there = [profile, prior, qualification]
        complete = all(not w or t is not None for w, t in zip(wanted, there, strict=True))
        return Loaded(new, objects, complete)


def _get(
    source: Source, kind: type[AnyRecord], name: str, limit_bytes: int, objects: dict[str, bytes]
) -> AnyRecord:
    key = object_key(kind, name)
    blob = source.read(key, limit_bytes)
    if blob is None:
        raise ObjectMissing(kind.KIND, name, source.url)
    record = parse_object(kind, name, blob.data, f"{source.url}/{key}")
    objects[key] = blob.data
    return record


def _parent(
    source: Source,
    kind: type[AnyRecord],
    name: str,
    fingerprint: str,
    objects: dict[str, bytes],
    notes: list[str],
) -> AnyRecord | None:
    """What a version came from. A table holds without it: a roll-back must not fail because
    some profile cannot be read."""
    if not name:
        return None
    try:
        found = _get(source, kind, name, MAX_RECORD_BYTES, objects)
    except (StoreError, RecordError) as error:
        what = "damaged" if isinstance(error, ObjectCorrupt | RecordError) else "not there"
        notes.append(f"its {kind.KIND} is {what}, so it is followed but not adapted: {error}")
        return None
    other = getattr(found, "fingerprint", fingerprint)
    if other != fingerprint:
        notes.append(f"its {kind.KIND} is of fingerprint {str(other)[:12]} and is not used")
        return None
    return found
