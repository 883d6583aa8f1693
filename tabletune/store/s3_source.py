"""S3 as a source: what an engine reads and tells back."""

from tabletune.store.s3_objects import S3Objects
from tabletune.store.source import Blob


class S3Source:
    """A place in S3 as a source; `Source` says what it does."""

    def __init__(self, objects: S3Objects) -> None:
        self._objects = objects

    @property
    def url(self) -> str:
        """See `Source.url`."""
        return self._objects.place.url

    def read(self, key: str, limit_bytes: int, known_tag: str = "") -> Blob | None:
        """See `Source.read`."""
        return self._objects.get(key, limit_bytes, known_tag)

    def write(self, key: str, data: bytes) -> None:
        """See `Source.write`."""
        self._objects.put(key, data)
