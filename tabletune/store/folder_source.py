"""A folder as a source: what an engine on the same machine or file system reads."""

import hashlib
import pathlib

from tabletune.durable_file import open_to_read, write_durably
from tabletune.store.durable import store_errors
from tabletune.store.errors import NotAStore, StoreUnreachable, TooLarge
from tabletune.store.layout import MARKER_KEY
from tabletune.store.source import Blob


class FolderSource:
    """A store's folder, read without locks; `Source` says what it does.

    A folder that is missing is a source that is down: an engine may start before its network
    file system is mounted.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    @property
    def url(self) -> str:
        """See `Source.url`."""
        return self.root.absolute().as_uri()

    def read(self, key: str, limit_bytes: int, known_tag: str = "") -> Blob | None:
        """See `Source.read`."""
        path = self.root / key
        with store_errors(path, "read"):
            try:
                with open_to_read(path) as file:
                    data = file.read(limit_bytes + 1)
            except FileNotFoundError:
                if self.root.is_dir():
                    return None
                raise StoreUnreachable(
                    f"a store's folder at {self.root}", "nothing", "make it or mount it"
                ) from None
        if len(data) > limit_bytes:
            advice = "look what that file is; it is no record"
            raise TooLarge(f"at most {limit_bytes} bytes at {path}", "more", advice)
        tag = hashlib.sha256(data).hexdigest()
        return Blob(b"", tag, unchanged=True) if tag == known_tag else Blob(data, tag)

    def write(self, key: str, data: bytes) -> None:
        """See `Source.write`.

        Raises:
            NotAStore: nothing was ever promoted here, so nobody would read it.
        """
        with store_errors(self.root / key, "write"):
            if not (self.root / MARKER_KEY).is_file():
                advice = "promote a table version first"
                raise NotAStore(f"a store at {self.root}", f"no {MARKER_KEY}", advice)
            write_durably(self.root / key, data)
