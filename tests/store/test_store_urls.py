"""URLs of stores and sources: what they name, and what is refused."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.store.errors import BadName
from tabletune.store.folder import FolderStore
from tabletune.store.folder_source import FolderSource
from tabletune.store.http_source import HttpSource
from tabletune.store.opening import open_source, open_store
from tabletune.store.s3 import S3Store
from tabletune.store.s3_source import S3Source
from tabletune.store.s3_url import S3Place, parse_s3_url

PARTS = st.text("abcXYZ09-_.+ %äß", min_size=1, max_size=8).filter(lambda p: p not in (".", ".."))


@given(
    prefix=st.lists(PARTS, max_size=3).map("/".join),
    endpoint=st.sampled_from(["", "http://127.0.0.1:8333", "https://s3.example.com"]),
    region=st.sampled_from(["", "eu-central-1"]),
    ca=st.sampled_from(["", "/etc/ssl/own ca.pem"]),
    style=st.sampled_from(["auto", "path", "virtual"]),
)
def test_a_places_url_names_that_place(
    prefix: str, endpoint: str, region: str, ca: str, style: str
) -> None:
    place = S3Place("bucket", prefix, endpoint, region, ca, style)  # type: ignore[arg-type]
    assert parse_s3_url(place.url) == place


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("s3://", "3 to 63"),
        ("s3://Bucket/p", "3 to 63"),
        ("s3://bucket/a//b", "leave empty parts"),
        ("s3://bucket/../b", "leave empty parts"),
        ("s3://bucket/p?endpoint=ftp://x", "begins with http"),
        ("s3://bucket/p?colour=blue", "each option once"),
        ("s3://bucket/p?region=a&region=b", "each option once"),
        ("s3://bucket/p?style=odd", "style is"),
        ("s3://bucket/p#part", "3 to 63"),
        ("ftp://host/folder", "correct it"),
        ("file://host/folder", "correct it"),
        ("file:relative", None),
        ("", "correct it"),
    ],
)
def test_what_names_nothing_is_refused(url: str, advice: str | None) -> None:
    if advice is None:
        assert isinstance(open_store(url), FolderStore)  # a folder's name, odd but allowed
        return
    for opens in (open_store, open_source):
        with pytest.raises(BadName, match=advice):
            opens(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:secret@bucket/p",
        "s3://bucket/p?endpoint=http://key:secret@host",
        "https://user:secret@host/tables",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadName, match="leave them out") as caught:
        open_source(url)
    assert "secret" not in str(caught.value)


def test_each_kind_of_url_opens_what_it_names(tmp_path: pathlib.Path) -> None:
    spaced = tmp_path / "a b"
    for text in (str(spaced), spaced.as_uri()):
        store, source = open_store(text), open_source(text)
        assert isinstance(store, FolderStore)
        assert isinstance(source, FolderSource)
        assert store.root == source.root == spaced
        assert store.url == source.url == spaced.as_uri()
    url = "s3://bucket/prefix?endpoint=http://127.0.0.1:9"
    assert isinstance(open_store(url), S3Store)
    assert isinstance(open_source(url), S3Source)
    assert open_store(url).url == url
    assert isinstance(open_source("https://host/tables/"), HttpSource)
    with pytest.raises(BadName, match="for engines to read from"):
        open_store("https://host/tables")
