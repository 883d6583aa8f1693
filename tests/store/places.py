"""The places that the store's tests run over: a folder and a real S3 server."""

import pathlib
from typing import Protocol

from tabletune.store.base import Store
from tabletune.store.folder import FolderStore
from tabletune.store.opening import open_store
from tests.s3_server import S3Server


class Place(Protocol):
    """What is below a store, for looking at it and for damaging it."""

    def open(self) -> Store: ...
    def read(self, key: str) -> bytes: ...
    def write(self, key: str, data: bytes) -> None: ...
    def remove(self, key: str) -> None: ...
    def snapshot(self) -> dict[str, bytes]:
        """Every object, except a folder's lock."""
        ...

    def marks(self) -> dict[str, object]:
        """Something of every object that changes when it is written anew."""
        ...


class FolderPlace:
    """A store's folder."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def open(self) -> Store:
        return FolderStore(self.root)

    def read(self, key: str) -> bytes:
        return (self.root / key).read_bytes()

    def write(self, key: str, data: bytes) -> None:
        (self.root / key).parent.mkdir(parents=True, exist_ok=True)
        (self.root / key).write_bytes(data)

    def remove(self, key: str) -> None:
        (self.root / key).unlink()

    def snapshot(self) -> dict[str, bytes]:
        return {key: self.read(key) for key in self._keys()}

    def marks(self) -> dict[str, object]:
        return {key: (self.root / key).stat().st_mtime_ns for key in self._keys()}

    def _keys(self) -> list[str]:
        paths = [path for path in sorted(self.root.rglob("*")) if path.is_file()]
        return [str(path.relative_to(self.root)) for path in paths if path.name != ".lock"]


class S3Prefix:
    """A prefix in the bucket of a real server."""

    def __init__(self, server: S3Server, prefix: str) -> None:
        self.server, self.prefix, self.client = server, prefix, server.client

    @property
    def url(self) -> str:
        return self.server.url(self.prefix)

    def open(self) -> Store:
        return open_store(self.url)

    def read(self, key: str) -> bytes:
        return self.client.get_object(**self._at(key))["Body"].read()

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Body=data, **self._at(key))

    def remove(self, key: str) -> None:
        self.client.delete_object(**self._at(key))

    def snapshot(self) -> dict[str, bytes]:
        return {key: self.read(key) for key in self.marks()}

    def marks(self) -> dict[str, object]:
        listed = self.client.list_objects_v2(Bucket=self.server.bucket, Prefix=f"{self.prefix}/")
        start = len(self.prefix) + 1
        found = listed.get("Contents", [])
        return {item["Key"][start:]: (item["ETag"], item["LastModified"]) for item in found}

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self.server.bucket, "Key": f"{self.prefix}/{key}"}
