"""The public keys that an engine trusts, from TABLETUNE_PUBLIC_KEY."""

import pathlib

from tabletune.store.signing import TrustedKeys, load_trusted


def trusted_keys(path: pathlib.Path | None) -> TrustedKeys | None:
    """The keys in the file; None where no file is named, and then signatures are not asked for.

    Raises:
        StoreError: the file cannot be read, or the library for it is missing. Nothing may be
            followed then: a key was named, so something must be signed.
    """
    return None if path is None else load_trusted(path)
