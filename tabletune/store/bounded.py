"""Reads a body of unknown honesty: bounded in size and time."""

from collections.abc import Callable
from typing import Final

from tabletune.store.errors import StoreUnreachable, TooLarge

#: Bodies are read in pieces of this size, and the time is looked at between them.
PIECE_BYTES: Final = 1 << 16


def read_bounded(
    read: Callable[[int], bytes],
    where: str,
    limit_bytes: int,
    length: int | None,
    within_s: float,
    clock: Callable[[], float],
) -> bytes:
    """A body of at most `limit_bytes`, read within `within_s`.

    Args:
        read: gives up to so many bytes, none at the end.
        length: how long the server says that it is.

    Raises:
        TooLarge, StoreUnreachable
    """
    if length is not None and length > limit_bytes:
        raise _too_large(where, limit_bytes, f"{length} bytes")
    begun_s = clock()
    pieces: list[bytes] = []
    size = 0
    while piece := read(PIECE_BYTES):
        size += len(piece)
        if size > limit_bytes:
            raise _too_large(where, limit_bytes, f"{size} bytes or more")
        pieces.append(piece)
        if clock() - begun_s > within_s:
            raise StoreUnreachable(
                f"{where} within {within_s:g} s",
                f"{size} bytes of it in that time",
                "look at the network and the server; it is asked again",
            )
    if length is not None and size != length:
        raise StoreUnreachable(
            f"{length} bytes of {where}", f"{size}, then the end", "it is asked again"
        )
    return b"".join(pieces)


def _too_large(where: str, limit_bytes: int, found: str) -> TooLarge:
    return TooLarge(
        f"at most {limit_bytes} bytes at {where}",
        found,
        "look what that object is; it is no record",
    )
