"""A promotion in a real S3 server that is slow, full, forbids, or dies: it happened or it did not.

A proxy does the harm at exactly one request, or at each of them in turn.
"""

import dataclasses
import pathlib
import threading
from collections.abc import Callable, Iterator

import pytest

from tabletune.store.check import problems
from tabletune.store.errors import (
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreUnwritable,
)
from tabletune.store.promotion import Move, promote
from tabletune.store.s3 import S3Store
from tabletune.store.s3_client import Patience
from tabletune.store.s3_objects import S3Objects
from tabletune.store.s3_url import parse_s3_url
from tests.s3_proxy import Fault, S3Proxy
from tests.s3_server import S3Server, find_server, start_server, stop_server
from tests.store.places import S3Prefix
from tests.store.world import AT, World

#: One try for each request, so that a fault is met and not waited out.
SHORT = Patience(connect_s=5.0, read_s=15.0, body_s=15.0, attempts=1)

#: For a server that has just been killed and started again, on a busy machine.
PATIENT = Patience(connect_s=5.0, read_s=60.0, body_s=60.0, attempts=3)


class Scene:
    """A store with a version in force and another to promote, and a way to it through a proxy."""

    def __init__(self, server: S3Server, proxy: S3Proxy, prefix: str) -> None:
        self.proxy = proxy
        self.world = World(S3Prefix(server, prefix))
        self.first, verdict = self.world.candidate()
        promote(self.world.store, "live", self.first, verdict, AT, "a test", "first")
        self.second, self.verdict = self.world.candidate(incumbent=self.first)
        self.url = dataclasses.replace(server, endpoint=proxy.address).url(prefix)

    def promote(self, patience: Patience = SHORT) -> Move:
        """What a process does that opens the store through the proxy and promotes."""
        store = S3Store(S3Objects(parse_s3_url(self.url), patience))
        return promote(store, "live", self.second, self.verdict, AT, "a test", "second")

    def history(self) -> list[str]:
        """By the sound way; newest first."""
        store = self.world.place.open()
        assert problems(store) == []
        return [state.table_version for state in store.history("live")]

    def finish(self) -> None:
        """Without faults the promotion is done, once, whatever was done of it before."""
        self.proxy.faults.clear()
        self.promote(PATIENT)
        assert self.history() == [self.second, self.first]


@pytest.fixture
def scene(s3_server: S3Server, s3_place: S3Prefix) -> Iterator[Scene]:
    with S3Proxy(s3_server.endpoint) as proxy:
        yield Scene(s3_server, proxy, s3_place.prefix)


FULL = (507, "XMinioStorageFull", StoreFull)
QUOTA = (403, "QuotaExceeded", StoreFull)
FORBIDDEN = (403, "AccessDenied", StoreUnwritable)
BUSY = (503, "SlowDown", StoreUnreachable)


@pytest.mark.parametrize("answer", [FULL, QUOTA, FORBIDDEN, BUSY], ids=lambda a: a[1])
def test_refused_at_any_write_the_old_version_stays(
    scene: Scene, answer: tuple[int, str, type[StoreError]]
) -> None:
    """The n-th write is refused, for every n; those before it are harmless."""
    status, code, kind = answer
    refused = 0
    while True:
        # Every write from the n-th on: a full store does not become empty by itself.
        sound = Fault(method="PUT", times=refused)
        scene.proxy.faults[:] = [sound, Fault(method="PUT", status=status, code=code)]
        try:
            scene.promote()
            break
        except kind as error:
            told = str(error)
        assert code in told
        assert scene.history() == [scene.first], refused
        refused += 1
    assert refused >= 5  # the probe's writes, the pointer's state, the pointer
    assert scene.history() == [scene.second, scene.first]
    scene.finish()


def test_forbidden_to_read_it_says_what_is_missing(scene: Scene) -> None:
    scene.proxy.faults.append(Fault(method="GET", status=403, code="AccessDenied"))
    with pytest.raises(StoreUnwritable, match="GetObject, PutObject and ListBucket"):
        scene.promote()
    scene.finish()


def test_slow_is_no_failure(scene: Scene) -> None:
    scene.proxy.faults.append(Fault(delay_s=0.05))
    assert scene.promote().moved
    assert len(scene.proxy.requests) < 60, "a slow store multiplies every request"
    scene.finish()


def test_too_slow_is_given_up_in_time_and_nothing_is_torn(scene: Scene) -> None:
    """The pointer's write arrives, late, after the client has gone."""
    impatient = dataclasses.replace(SHORT, read_s=0.5)
    given_up, landed = threading.Event(), threading.Event()
    late = Fault(method="PUT", path="pointer.json", times=1, after=landed.set)
    late.before = lambda: given_up.wait(60)
    scene.proxy.faults.append(late)
    with pytest.raises(OutcomeUnknown, match="may still arrive"):
        scene.promote(impatient)
    assert scene.history() == [scene.first]
    given_up.set()
    assert landed.wait(60)
    assert scene.history() == [scene.second, scene.first]
    scene.finish()


def test_an_answer_that_is_lost_anywhere_loses_nothing(scene: Scene) -> None:
    """The connection breaks after each write in turn; boto3 tries again and meets itself."""
    patient = dataclasses.replace(SHORT, attempts=3)
    scene.proxy.faults.append(Fault(method="PUT", path="channels/live", cut=True, times=1))
    assert scene.promote(patient).moved
    assert scene.history() == [scene.second, scene.first]
    scene.finish()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_server_dies_as_the_pointer_is_written(
    tmp_path: pathlib.Path, s3_server: S3Server, moment: str
) -> None:
    """SIGKILL just before the write arrives, or when it is done and not yet answered."""
    folder = tmp_path / "server"
    folder.mkdir()
    server = start_server(find_server(), folder)
    port = int(server.endpoint.rpartition(":")[2])
    kill: Callable[[], None] = lambda: stop_server(server)  # noqa: E731
    again: S3Server | None = None
    try:
        with S3Proxy(server.endpoint) as proxy:
            scene = Scene(server, proxy, "killed")
            done = Fault(method="PUT", path="pointer.json", times=1, cut=moment == "after")
            setattr(done, moment, kill)
            proxy.faults.append(done)
            with pytest.raises(StoreUnreachable):
                scene.promote()
            again = start_server(find_server(), folder, port)
            found = scene.history()
            assert found in ([scene.first], [scene.second, scene.first])
            assert (len(found) == 2) is (moment == "after")
            scene.finish()
    finally:
        stop_server(again or server)
