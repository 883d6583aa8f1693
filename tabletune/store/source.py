"""What an engine reads a table from: bytes by key, whatever they are kept in.

A source is less than a store: it can be asked again cheaply whether an object has changed, and
it takes no part in promotions. `http(s)://` has only this; folders and S3 have both.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Blob:
    """An object as it was read.

    tag: the source's mark of this content; empty where it has none. unchanged: the object
    still has the tag that was known, and `data` is empty.
    """

    data: bytes
    tag: str
    unchanged: bool = False


class Source(Protocol):
    """Reads objects by key (store/layout.py). Every method may raise a `StoreError`."""

    @property
    def url(self) -> str:
        """Where it is; without credentials."""
        ...

    def read(self, key: str, limit_bytes: int, known_tag: str = "") -> Blob | None:
        """The object, None where there is none, `unchanged` where it still has `known_tag`.

        Bounded in time and size.

        Raises:
            TooLarge: it has more than `limit_bytes`.
            StoreUnreachable: no answer, or not in time.
            StoreUnwritable: it may not be read.
        """
        ...

    def write(self, key: str, data: bytes) -> None:
        """Write or overwrite an object, without any condition: for what engines tell back.

        Raises:
            StoreUnwritable: this source cannot be written.
        """
        ...
