"""Opens what a URL names: a store to work with, or a source to read from."""

import os
import pathlib
from urllib.parse import unquote, urlsplit

from tabletune.store.base import Store
from tabletune.store.errors import BadName, NoStore
from tabletune.store.folder import FolderStore
from tabletune.store.folder_source import FolderSource
from tabletune.store.http_source import HttpSource
from tabletune.store.s3 import S3Store
from tabletune.store.s3_client import Patience
from tabletune.store.s3_objects import S3Objects
from tabletune.store.s3_source import S3Source
from tabletune.store.s3_url import parse_s3_url
from tabletune.store.source import Source

#: An engine asks again soon, so it waits for one answer only shortly.
ENGINE_PATIENCE = Patience(connect_s=3.0, read_s=5.0, body_s=30.0, attempts=2)


def open_store(url: str) -> Store:
    """The store at a folder's path, `file://…` or `s3://…`.

    Raises:
        BadName: another kind of URL.
        NotAStore, StoreUnwritable: the folder is none or cannot be read. A store in S3 says
            so when it is first used.
    """
    scheme = _scheme(url)
    if scheme == "s3":
        return S3Store(S3Objects(parse_s3_url(url)))
    _refuse_http(url, scheme)
    return FolderStore(_folder(url, scheme))


def open_existing(url: str) -> Store:
    """The store at a URL as `open_store` takes it, for what makes no sense without one.

    Raises:
        NoStore: nothing is there.
        StoreError: it is no URL of a store, or cannot be read.
    """
    store = open_store(url)
    if not store.exists():
        raise NoStore(store.url)
    return store


def place_of(url: str) -> str:
    """One spelling for all URLs of the store that `open_store` would open; looks at none.

    Raises:
        BadName: no such URL.
    """
    scheme = _scheme(url)
    if scheme == "s3":
        return parse_s3_url(url).url
    _refuse_http(url, scheme)
    return os.path.abspath(_folder(url, scheme))


def open_source(url: str) -> Source:
    """The source at `file://…`, `s3://…`, `http(s)://…` or a folder's path.

    Raises:
        BadName: another kind of URL.
    """
    scheme = _scheme(url)
    if scheme == "s3":
        return S3Source(S3Objects(parse_s3_url(url), ENGINE_PATIENCE))
    if scheme in ("http", "https"):
        return HttpSource(url)
    return FolderSource(_folder(url, scheme))


def _refuse_http(url: str, scheme: str) -> None:
    if scheme in ("http", "https"):
        advice = "http(s):// is for engines to read from; name the folder or the bucket behind it"
        raise BadName("a store that can be written: a folder or s3://bucket/prefix", url, advice)


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower() if "://" in url else ""


def _folder(url: str, scheme: str) -> pathlib.Path:
    if not scheme and url:
        return pathlib.Path(url)
    parts = urlsplit(url)
    path = unquote(parts.path)
    good = scheme == "file" and parts.netloc in ("", "localhost") and path.startswith("/")
    if not good or parts.query or parts.fragment or "\0" in path:
        raise BadName(
            "a folder, or a URL such as file:///srv/tables or s3://bucket/prefix",
            repr(url),
            "correct it",
        )
    return pathlib.Path(path)
