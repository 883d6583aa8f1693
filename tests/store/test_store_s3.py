"""What is particular to a store in S3: its server's answers, and servers that are unsound."""

import pathlib
from collections.abc import Iterator

import pytest

from tabletune.records.fingerprint import Fingerprint
from tabletune.records.table import TableVersion
from tabletune.store.base import Token
from tabletune.store.errors import (
    ConditionsIgnored,
    LostRace,
    NotAStore,
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreUnwritable,
    SupportMissing,
    TooLarge,
)
from tabletune.store.opening import open_store
from tabletune.store.s3 import S3Store
from tabletune.store.s3_client import Patience, make_client
from tabletune.store.s3_objects import S3Objects
from tabletune.store.s3_probe import check_conditions
from tabletune.store.s3_url import parse_s3_url
from tests.faulty_server import FaultyServer, make_certificate
from tests.s3_server import S3Server, find_server, start_server, stop_server
from tests.store.places import S3Prefix
from tests.store.world import FINGERPRINT, World, after, make_version, pointer_for

SHORT = Patience(connect_s=1.0, read_s=0.3, body_s=0.5, attempts=1)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with FaultyServer().start() as server:
        yield server


def objects_at(server: FaultyServer, options: str = "", prefix: str = "p") -> S3Objects:
    url = f"s3://bucket/{prefix}?endpoint={server.address}{options}"
    return S3Objects(parse_s3_url(url), SHORT)


def filled(server: FaultyServer) -> tuple[S3Store, list[str]]:
    """A store with two versions, the first in force."""
    store = S3Store(objects_at(server))
    store.put(FINGERPRINT)
    versions = [store.put(make_version(number)) for number in range(2)]
    store.move_pointer("live", pointer_for(versions[0]), Token())
    return store, versions


def test_a_real_server_keeps_conditions(s3_place: S3Prefix) -> None:
    objects = S3Objects(parse_s3_url(s3_place.url))
    check_conditions(objects)
    assert s3_place.marks() == {}  # the probe leaves nothing


def test_a_server_that_ignores_conditions_is_refused_for_promotion(faulty: FaultyServer) -> None:
    store, versions = filled(faulty)
    pointer, token = store.read_pointer("live")
    assert pointer is not None
    faulty.faults.ignore_conditions = True
    again = S3Store(objects_at(faulty))
    with pytest.raises(ConditionsIgnored, match=r"If-None-Match: \* overwrote an object"):
        again.move_pointer("live", after(pointer, token, versions[1]), token)
    with pytest.raises(ConditionsIgnored, match="use another S3 server"):
        again.check_writable()
    # Reading goes on, and what was in force still is.
    assert again.read_pointer("live")[0] == pointer


def test_prefixes_of_one_bucket_are_apart(s3_server: S3Server, s3_place: S3Prefix) -> None:
    inner = S3Prefix(s3_server, f"{s3_place.prefix}-more")
    first, second = World(s3_place), World(inner)
    name = second.store.put(make_version(1))
    assert first.store.list(TableVersion) == ()
    assert second.store.list(TableVersion) == (name,)


def test_a_listing_of_many_pages_is_whole(s3_place: S3Prefix) -> None:
    objects = S3Objects(parse_s3_url(s3_place.url))
    names = [f"many/{number:03}" for number in range(23)]
    for name in names:
        s3_place.write(name, b"{}")
    assert sorted(objects.keys("many/", page=5)) == names


def test_a_prefix_with_other_things_is_refused_untouched(s3_place: S3Prefix) -> None:
    s3_place.write("thesis.tex", b"years of work")
    before = s3_place.marks()
    with pytest.raises(NotAStore, match=r"thesis\.tex"):
        s3_place.open().list(Fingerprint)
    with pytest.raises(NotAStore, match=r"thesis\.tex"):
        s3_place.open().put(FINGERPRINT)
    s3_place.write("store.json", b'{"store": "tabletune", "format_version": 2}')
    with pytest.raises(NotAStore, match="upgrade tabletune"):
        s3_place.open().put(FINGERPRINT)
    assert set(s3_place.marks()) == {*before, "store.json"}


def test_wrong_credentials_are_explained(
    s3_place: S3Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    World(s3_place)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreUnwritable, match="check the credentials"):
        s3_place.open().list(Fingerprint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(StoreUnwritable, match="set AWS_ACCESS_KEY_ID"):
        s3_place.open().list(Fingerprint)


def test_a_missing_bucket_is_named(s3_server: S3Server) -> None:
    store = open_store(f"s3://nobody-made-it?endpoint={s3_server.endpoint}")
    with pytest.raises(StoreError, match="no bucket 'nobody-made-it'"):
        store.put(FINGERPRINT)


@pytest.mark.parametrize(
    ("status", "error"),
    [(403, StoreUnwritable), (503, StoreUnreachable), (500, StoreUnreachable), (507, StoreFull)],
)
def test_an_answer_that_is_a_failure_is_explained(
    faulty: FaultyServer, status: int, error: type[StoreError]
) -> None:
    store, versions = filled(faulty)
    before = dict(faulty.objects)
    faulty.faults.status = status
    with pytest.raises(error):
        store.get(TableVersion, versions[0])
    with pytest.raises(error):
        store.put(make_version(9))
    faulty.faults.status = 0
    assert faulty.objects == before


def test_a_server_that_hangs_trickles_or_breaks_off_is_not_waited_for(
    faulty: FaultyServer,
) -> None:
    store, versions = filled(faulty)
    for fault in ("hang", "trickle", "cut"):
        setattr(faulty.faults, fault, True)
        with pytest.raises(StoreUnreachable):
            store.get(TableVersion, versions[0])
        setattr(faulty.faults, fault, False)
        assert store.get(TableVersion, versions[0]) == make_version(0)


def test_nobody_listening_is_explained(faulty: FaultyServer) -> None:
    store = S3Store(S3Objects(parse_s3_url("s3://bucket?endpoint=http://127.0.0.1:9"), SHORT))
    with pytest.raises(StoreUnreachable, match="check the endpoint"):
        store.put(FINGERPRINT)


def test_what_is_too_large_is_not_read(faulty: FaultyServer) -> None:
    faulty.objects["bucket/p/big"] = b"x" * 1000
    with pytest.raises(TooLarge, match="1000 bytes"):
        objects_at(faulty).get("big", 999)
    blob = objects_at(faulty).get("big", 1000)
    assert blob is not None
    assert len(blob.data) == 1000


def test_a_move_whose_answer_is_lost_is_found_to_have_happened(faulty: FaultyServer) -> None:
    store, versions = filled(faulty)
    pointer, token = store.read_pointer("live")
    assert pointer is not None
    faulty.faults.path, faulty.faults.lose_answers = "pointer.json", 1
    name = store.move_pointer("live", after(pointer, token, versions[1]), token)
    assert store.read_pointer("live")[1].state == name


def test_a_retry_that_meets_its_own_write_is_no_lost_race(faulty: FaultyServer) -> None:
    store, versions = filled(faulty)
    pointer, token = store.read_pointer("live")
    assert pointer is not None
    patient = S3Objects(store._objects.place, Patience(1.0, 1.0, 1.0, attempts=3))
    faulty.faults.path, faulty.faults.lose_answers = "pointer.json", 1
    name = S3Store(patient).move_pointer("live", after(pointer, token, versions[1]), token)
    assert store.read_pointer("live")[1].state == name
    with pytest.raises(LostRace):
        S3Store(patient).move_pointer("live", after(pointer, token, versions[0]), token)


def test_a_move_that_cannot_be_looked_at_is_said_to_be_unknown(faulty: FaultyServer) -> None:
    store, versions = filled(faulty)
    pointer, token = store.read_pointer("live")
    assert pointer is not None
    objects = store._objects
    put = objects.put

    def down_from_then_on(key: str, data: bytes, **conditions: object) -> str | None:
        if key.endswith("pointer.json"):
            faulty.faults.status = 503
        return put(key, data, **conditions)  # type: ignore[arg-type]

    objects.put = down_from_then_on  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown, match="may or may not have moved"):
        store.move_pointer("live", after(pointer, token, versions[1]), token)
    faulty.faults.status = 0
    assert store.read_pointer("live")[0] == pointer


def test_a_certificate_of_an_own_authority_is_accepted_by_name(
    tmp_path: pathlib.Path, faulty: FaultyServer
) -> None:
    certificate = make_certificate(tmp_path)
    with FaultyServer({"bucket/p/a": b"1"}).start(certificate) as server:
        blob = objects_at(server, f"&ca={certificate}").get("a", 10)
        assert blob is not None
        assert blob.data == b"1"
        with pytest.raises(StoreUnreachable, match="certificate verify failed"):
            objects_at(server).get("a", 10)


def test_the_store_survives_its_servers_death(tmp_path: pathlib.Path, s3_server: S3Server) -> None:
    """Killed as by `kill -9` after a promotion, and started again on the same folder."""
    server_folder = tmp_path / "server"
    server_folder.mkdir()
    first = start_server(find_server(), server_folder)
    try:
        place = S3Prefix(first, "killed")
        world = World(place)
        version = world.store.put(make_version(1))
        state = world.store.move_pointer("live", pointer_for(version), Token())
        port = int(first.endpoint.rpartition(":")[2])
    finally:
        stop_server(first)
    with pytest.raises(StoreUnreachable):
        S3Store(S3Objects(parse_s3_url(place.url), SHORT)).read_pointer("live")
    second = start_server(find_server(), server_folder, port)
    try:
        pointer, token = place.open().read_pointer("live")
        assert pointer is not None
        assert (pointer.table_version, token.state) == (version, state)
    finally:
        stop_server(second)


def test_without_boto3_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3.session", None)
    with pytest.raises(SupportMissing, match=r"install tabletune\[s3\]"):
        make_client(parse_s3_url("s3://bucket"), SHORT)
