"""Sources: the same answers from a folder, from S3 and over HTTP; and a web server's faults."""

import pathlib
from collections.abc import Iterator

import pytest

from tabletune.store.errors import (
    NotAStore,
    StoreError,
    StoreUnreachable,
    StoreUnwritable,
    TooLarge,
)
from tabletune.store.folder_source import FolderSource
from tabletune.store.http_source import HttpSource
from tabletune.store.layout import live_key
from tabletune.store.opening import open_source
from tabletune.store.source import Source
from tests.faulty_server import FaultyServer, make_certificate
from tests.store.places import S3Prefix
from tests.store.world import World


@pytest.fixture
def web() -> Iterator[FaultyServer]:
    with FaultyServer().start() as server:
        yield server


@pytest.fixture(params=["folder", "s3", "http", "http without tags"])
def kept(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, web: FaultyServer
) -> tuple[Source, object]:
    """A source, and a function that puts an object into it."""
    if request.param == "folder":
        (tmp_path / "store").mkdir()
        return FolderSource(tmp_path / "store"), lambda key, data: (
            tmp_path / "store" / key
        ).write_bytes(data)
    if request.param == "s3":
        place: S3Prefix = request.getfixturevalue("s3_place")
        return open_source(place.url), place.write
    web.use_tags = request.param == "http"
    source = open_source(f"{web.address}/tables/")
    return source, lambda key, data: web.objects.__setitem__(f"tables/{key}", data)


def test_objects_are_read_and_asked_for_again(kept: tuple[Source, object]) -> None:
    source, put = kept
    assert callable(put)
    assert source.read("a.json", 10) is None
    put("a.json", b"one")
    blob = source.read("a.json", 3)
    assert blob is not None
    assert (blob.data, blob.unchanged) == (b"one", False)
    again = source.read("a.json", 3, blob.tag)
    assert again is not None
    assert (again.data, again.unchanged, again.tag) == (b"", True, blob.tag)
    put("a.json", b"two")
    changed = source.read("a.json", 3, blob.tag)
    assert changed is not None
    assert (changed.data, changed.unchanged) == (b"two", False)
    with pytest.raises(TooLarge):
        source.read("a.json", 2)


def test_what_engines_tell_is_written_beside_a_store(world: World) -> None:
    source = open_source(world.store.url)
    key = live_key("live", "engine-1")
    source.write(key, b"{}")
    source.write(key, b'{"more":1}')
    assert world.place.read(key) == b'{"more":1}'


def test_a_folder_that_is_no_store_is_not_written(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotAStore, match="promote a table version first"):
        FolderSource(tmp_path).write(live_key("live", "e"), b"{}")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_mounted_is_a_source_that_is_down(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StoreUnreachable, match="mount it"):
        FolderSource(tmp_path / "missing").read("a", 10)


def test_nothing_is_written_over_http(web: FaultyServer) -> None:
    with pytest.raises(StoreUnwritable, match="read only"):
        open_source(web.address).write("a", b"")
    assert web.requests == []


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, StoreUnwritable),
        (403, StoreUnwritable),
        (429, StoreUnreachable),
        (500, StoreUnreachable),
        (503, StoreUnreachable),
        (400, StoreError),
    ],
)
def test_failures_over_http_are_explained(
    web: FaultyServer, status: int, error: type[StoreError]
) -> None:
    web.faults.status = status
    with pytest.raises(error, match=f"status {status}"):
        open_source(web.address).read("a", 10)


@pytest.mark.parametrize("fault", ["hang", "cut", "trickle"])
def test_a_web_server_is_not_waited_for_without_end(web: FaultyServer, fault: str) -> None:
    web.objects["a"] = b"x" * 400
    source = HttpSource(web.address, timeout_s=1.5, body_s=1.5)
    setattr(web.faults, fault, True)
    with pytest.raises(StoreUnreachable):
        source.read("a", 1000)


def test_redirects_keep_to_http_and_never_step_down(
    web: FaultyServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.objects["b"] = b"reached"
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    web.faults.path = "a"
    source = open_source(web.address)
    for target in (secret.as_uri(), "ftp://127.0.0.1/x", "data:,secret"):
        web.faults.redirect = target
        with pytest.raises(StoreError) as caught:
            source.read("a", 10)
        assert "302" in str(caught.value)
    web.faults.redirect = f"{web.address}/b"
    blob = source.read("a", 10)
    assert blob is not None
    assert blob.data == b"reached"
    web.faults.redirect = f"{web.address}/a"  # round and round
    with pytest.raises(StoreError):
        source.read("a", 10)
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with FaultyServer({"a": b"safe"}).start(certificate) as safe:
        blob = open_source(safe.address).read("a", 10)
        assert blob is not None
        assert blob.data == b"safe"
        safe.faults.redirect = f"{web.address}/b"
        with pytest.raises(StoreError, match="from https to http is not followed"):
            open_source(safe.address).read("a", 10)


def test_a_certificate_that_nobody_vouches_for_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with (
        FaultyServer({"a": b"1"}).start(make_certificate(tmp_path)) as server,
        pytest.raises(StoreUnreachable, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        open_source(server.address).read("a", 10)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "\N{SNOWMAN}"])
def test_a_host_that_cannot_be_is_told_like_one_that_is_not_there(
    host: str, web: FaultyServer
) -> None:
    with pytest.raises(StoreUnreachable, match="check the address"):
        HttpSource(f"http://{host}/tables").read("a", 10)
