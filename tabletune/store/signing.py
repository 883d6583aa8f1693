"""Signs pointers, and checks the signatures: Ed25519, by `cryptography`.

A channel that crosses a trust boundary is signed where tables are promoted; engines that have
the public key refuse every other pointer. The private key never leaves the control
environment.
"""

import base64
import contextlib
import hashlib
import os
import pathlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tabletune.records.pointer import Pointer, signed_part
from tabletune.store.errors import StoreError, SupportMissing

KEY_ID_DIGITS: Final = 16
SIGNING_KEY_VARIABLE: Final = "TABLETUNE_SIGNING_KEY"
PUBLIC_KEY_VARIABLE: Final = "TABLETUNE_PUBLIC_KEY"
MAX_KEY_FILE_BYTES: Final = 64 * 1024
_PEM: Final = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)


class KeyUnusable(StoreError):
    """A key cannot be made or read; nothing was signed."""


class SignatureWrong(StoreError):
    """A pointer that is not signed, or not by a key that is trusted here."""


@dataclass(frozen=True)
class Signer:
    """A private key, and the id of its public one."""

    key_id: str
    key: Any

    def sign(self, pointer: Pointer) -> Pointer:
        """The pointer, signed."""
        named = pointer.model_copy(update={"signed_by": self.key_id, "signature": ""})
        signature = self.key.sign(signed_part(named.to_json()))
        text = base64.b64encode(signature).decode()
        return Pointer.model_validate(named.model_dump() | {"signature": text})


@dataclass(frozen=True)
class TrustedKeys:
    """The public keys whose signatures count, by id; several while keys are exchanged."""

    keys: dict[str, Any]

    def check(self, data: bytes) -> None:
        """Do nothing if a pointer's stored bytes are signed by one of these keys.

        Raises:
            SignatureWrong: they are not.
            RecordError: they are no pointer.
        """
        from cryptography.exceptions import InvalidSignature

        pointer = Pointer.from_json(data)
        known = ", ".join(self.keys)
        expected = f"a pointer signed by key {known}"
        if not pointer.signature:
            raise SignatureWrong(
                expected,
                "no signature",
                "promote with TABLETUNE_SIGNING_KEY set; nothing unsigned is used here",
            )
        key = self.keys.get(pointer.signed_by)
        if key is None:
            advice = "give this engine that key's public half if it is to be trusted"
            raise SignatureWrong(expected, f"one of key {pointer.signed_by}", advice)
        try:
            key.verify(base64.b64decode(pointer.signature), signed_part(data))
        except InvalidSignature as error:
            raise SignatureWrong(
                expected,
                f"a signature of key {pointer.signed_by} that is not of this pointer",
                "somebody changed it: see who can write to the source, then promote again",
            ) from error


def signer_from(environment: Mapping[str, str]) -> Signer | None:
    """The private key that TABLETUNE_SIGNING_KEY names; None where it is not set.

    Raises:
        KeyUnusable, SupportMissing: it is set and cannot be used.
    """
    path = environment.get(SIGNING_KEY_VARIABLE)
    return load_signer(pathlib.Path(path)) if path else None


def make_key(path: pathlib.Path) -> str:
    """Write a new private key to `path` (only its owner may read it) and the public one beside
    it, to `path` with `.pub` added; returns the key's id.

    Raises:
        KeyUnusable: there is a file already, or it cannot be written. Nothing is left behind,
            and what was there before is untouched.
    """
    if not path.name:
        raise KeyUnusable("the name of a key's file", repr(str(path)), "name a file to be made")
    serialization, ed25519 = _library()
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = _public_pem(key.public_key())
    written: list[pathlib.Path] = []
    target = path
    try:
        for target, data, mode in ((path, private, 0o600), (public_path(path), public, 0o644)):
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            written.append(target)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
    except BaseException as error:
        for half in written:  # one half without the other is of no use, and in the way
            with contextlib.suppress(OSError):
                half.unlink()
        if isinstance(error, OSError):
            raise _not_written(path, target, error) from error
        raise
    return key_id(key.public_key())


def _not_written(path: pathlib.Path, target: pathlib.Path, error: OSError) -> KeyUnusable:
    expected = f"to write a new key to {path} and {public_path(path)}"
    if isinstance(error, FileExistsError):
        advice = "name another file, or move it away; an existing key is never overwritten"
        return KeyUnusable(expected, f"{target} there already", advice)
    return KeyUnusable(expected, f"{error.strerror} ({target})", "name a file that can be written")


def public_path(path: pathlib.Path) -> pathlib.Path:
    """Where the public half of the key at `path` is."""
    return path.with_name(path.name + ".pub")


def load_signer(path: pathlib.Path) -> Signer:
    """The private key in a file.

    Raises:
        KeyUnusable: it cannot be read, is no Ed25519 key, or others can read it.
    """
    serialization, ed25519 = _library()
    data = _key_bytes(path)
    if path.stat().st_mode & 0o077:
        raise KeyUnusable(
            f"a private key that only its owner can read at {path}",
            f"mode {path.stat().st_mode & 0o777:o}",
            f"chmod 600 {path}; make a new key if others have read it",
        )
    try:
        key: Any = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise _no_key("a private Ed25519 key in PEM without a password", path, error) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _no_key("a private Ed25519 key", path, type(key).__name__)
    return Signer(key_id(key.public_key()), key)


def load_trusted(path: pathlib.Path) -> TrustedKeys:
    """The public keys in a file, one or more PEM blocks.

    Raises:
        KeyUnusable: it cannot be read, or holds something else.
    """
    serialization, ed25519 = _library()
    blocks = _PEM.findall(_key_bytes(path))
    if not blocks:
        raise _no_key("public Ed25519 keys in PEM", path, "none")
    keys: dict[str, Any] = {}
    for block in blocks:
        try:
            key: Any = serialization.load_pem_public_key(block)
        except (ValueError, TypeError) as error:
            raise _no_key("public Ed25519 keys in PEM", path, error) from error
        if not isinstance(key, ed25519.Ed25519PublicKey):
            raise _no_key("public Ed25519 keys", path, type(key).__name__)
        keys[key_id(key)] = key
    return TrustedKeys(keys)


def key_id(public_key: Any) -> str:
    """The first digits of the SHA-256 of a public key."""
    return hashlib.sha256(public_key.public_bytes_raw()).hexdigest()[:KEY_ID_DIGITS]


def _public_pem(key: Any) -> bytes:
    serialization, _ = _library()
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _key_bytes(path: pathlib.Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_KEY_FILE_BYTES)
    except OSError as error:
        raise KeyUnusable(
            f"a key in {path}", str(error.strerror), "make one with `tabletune key new`"
        ) from error


def _no_key(expected: str, path: pathlib.Path, found: object) -> KeyUnusable:
    return KeyUnusable(f"{expected} in {path}", str(found), "make one with `tabletune key new`")


def _library() -> tuple[Any, Any]:
    """The modules `serialization` and `ed25519` of cryptography.

    Raises:
        SupportMissing: it is not installed.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise SupportMissing(
            "cryptography to be installed, for signed pointers",
            str(error),
            "install tabletune[signatures] (into an engine's environment: "
            "tabletune engine create … --with signatures)",
        ) from error
    return serialization, ed25519
