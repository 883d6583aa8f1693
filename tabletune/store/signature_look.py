"""Says how it stands with the signature of a channel's pointer, for people and scripts."""

from dataclasses import asdict, dataclass
from typing import Literal

from tabletune.records.base import MAX_RECORD_BYTES
from tabletune.records.pointer import Pointer
from tabletune.store.base import Store
from tabletune.store.errors import ObjectMissing
from tabletune.store.layout import object_key
from tabletune.store.opening import open_source
from tabletune.store.signing import SignatureWrong, TrustedKeys

State = Literal["valid", "wrong", "not_checked", "none"]


@dataclass(frozen=True)
class SignatureLook:
    """What an engine with these keys would make of the pointer.

    state: `wrong` is what it refuses, a missing signature too; `not_checked` and `none` where
    no key was given. signed_by: the key that it names. found: the same in words.
    """

    state: State
    signed_by: str
    found: str

    def as_json(self) -> dict[str, str]:
        """For a script."""
        return asdict(self)


def look_at_signature(store: Store, channel: str, trusted: TrustedKeys | None) -> SignatureLook:
    """How it stands with the pointer of a channel that has one.

    Args:
        trusted: the keys whose signatures count; None to check nothing.

    Raises:
        StoreError: the pointer cannot be read.
    """
    pointer, token = store.read_pointer(channel)
    signed_by = "" if pointer is None else pointer.signed_by
    if trusted is None:
        if not signed_by:
            return SignatureLook("none", "", "none")
        advice = "name the trusted keys by --public-key or TABLETUNE_PUBLIC_KEY"
        return SignatureLook("not_checked", signed_by, f"of key {signed_by}, not checked: {advice}")
    try:
        trusted.check(_stored(store, token.state))
    except SignatureWrong as error:
        return SignatureLook("wrong", signed_by, f"wrong: {error}")
    return SignatureLook("valid", signed_by, f"of key {signed_by}, valid")


def _stored(store: Store, state: str) -> bytes:
    """A pointer's state as it was written: signatures are over those bytes."""
    blob = open_source(store.url).read(object_key(Pointer, state), MAX_RECORD_BYTES)
    if blob is None:
        raise ObjectMissing(Pointer.KIND, state, store.url)
    return blob.data
