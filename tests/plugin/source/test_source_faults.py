"""Whatever is wrong with a source, the follower keeps the right version and says why."""

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tabletune.records.pointer import Pointer
from tabletune.store import opening
from tabletune.store.http_source import HttpSource
from tabletune_vllm.source import Refused, Unchanged, Unreachable
from tabletune_vllm.source.answers import Answer
from tests.faulty_server import FaultyServer
from tests.plugin.source import following
from tests.plugin.source.following import Channel
from tests.s3_server import S3Server, find_server, start_server, stop_server
from tests.store.places import FolderPlace, S3Prefix

STATES = (Refused, Unreachable)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A web server is given up after a third of a second, so that tests are quick."""
    monkeypatch.setattr(opening, "HttpSource", lambda url: HttpSource(url, 1.5, 1.5))


def object_file(channel: Channel, kind: str, name: str) -> pathlib.Path:
    assert isinstance(channel.place, FolderPlace)
    return channel.place.root / "objects" / kind / f"{name}.json"


def test_a_source_that_is_down_at_start_comes_later(
    folder_channel: Channel, web: FaultyServer
) -> None:
    name = folder_channel.promote()
    web.faults.status = 503
    follower = folder_channel.follower(web.address)
    answer = follower.poll(0.0)
    assert isinstance(answer, Unreachable)
    assert "503" in answer.reason
    assert follower.status()["version"] == ""
    web.faults.status = 0
    assert following.given(follower.poll(100.0)).name == name


@pytest.mark.parametrize("fault", ["status", "hang", "cut", "trickle"])
def test_a_source_that_fails_later_leaves_the_version_in_force(
    folder_channel: Channel, web: FaultyServer, fault: str
) -> None:
    """403, no answer, half an answer, and one that trickles, on a pointer that has moved."""
    first = folder_channel.promote()
    follower = folder_channel.follower(web.address)
    assert following.given(follower.poll(0.0)).name == first
    second = folder_channel.promote()
    setattr(web.faults, fault, 403 if fault == "status" else True)
    answer = follower.poll(100.0)
    assert isinstance(answer, Unreachable)
    assert web.address in answer.reason
    assert follower.status()["version"] == first
    assert follower.mode == "adapt"
    setattr(web.faults, fault, 0 if fault == "status" else False)
    assert following.given(follower.poll(300.0)).name == second


def test_with_a_cache_an_engine_starts_without_its_source(
    folder_channel: Channel, web: FaultyServer, tmp_path: pathlib.Path
) -> None:
    cache = tmp_path / "cache"
    first = folder_channel.promote()
    before = folder_channel.follower(web.address, cache=cache)
    assert following.given(before.poll(0.0)).name == first
    web.faults.status = 500
    follower = folder_channel.follower(web.address, cache=cache)
    new = following.given(follower.poll(0.0))
    assert (new.name, new.from_cache) == (first, True)
    assert "status 500" in new.notes[0]
    assert new.profile is not None
    assert new.prior is not None
    assert isinstance(follower.poll(100.0), Unreachable)
    web.faults.status = 0
    assert follower.poll(300.0) == Unchanged()  # it is the same version
    second = folder_channel.promote()
    new = following.given(follower.poll(600.0))
    assert (new.name, new.from_cache) == (second, False)


def test_an_old_cache_is_overtaken_by_the_source(
    folder_channel: Channel, web: FaultyServer, tmp_path: pathlib.Path
) -> None:
    folder_channel.promote()
    folder_channel.follower(web.address, cache=tmp_path / "c").poll(0.0)
    second = folder_channel.promote()
    new = following.given(folder_channel.follower(web.address, cache=tmp_path / "c").poll(0.0))
    assert (new.name, new.from_cache) == (second, False)


def test_a_switch_that_said_off_holds_while_the_source_is_down(
    folder_channel: Channel, web: FaultyServer, tmp_path: pathlib.Path
) -> None:
    folder_channel.promote()
    before = folder_channel.follower(web.address, cache=tmp_path / "c")
    before.poll(0.0)
    folder_channel.switch("off")
    before.poll(100.0)
    web.faults.status = 500
    follower = folder_channel.follower(web.address, cache=tmp_path / "c")
    assert isinstance(follower.poll(0.0), Unreachable)
    assert follower.mode == "off"
    web.faults.status = 0
    folder_channel.switch("shadow")
    following.given(follower.poll(300.0))
    assert follower.mode == "shadow"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b'"last"', b'"lost"').replace(b"nightly", b"nightlz"),
        lambda data: b"\xff" + data,
        lambda data: data + b" " * 17_000_000,
    ],
    ids=["half", "empty", "edited", "binary", "huge"],
)
@pytest.mark.parametrize("what", ["pointer", "table_version", "fingerprint"])
def test_damaged_objects_are_refused_until_they_are_whole(
    folder_channel: Channel, damage: Callable[[bytes], bytes], what: str
) -> None:
    first = folder_channel.promote()
    follower = folder_channel.follower()
    assert following.given(follower.poll(0.0)).name == first
    version = folder_channel.version(created_by="another")
    if what == "fingerprint":  # a new one, that the follower has not seen
        changed = folder_channel.fingerprint.device.model_copy(update={"driver": "7"})
        folder_channel.fingerprint = folder_channel.fingerprint.model_copy(
            update={"device": changed}
        )
        version = folder_channel.version()
    second = folder_channel.promote(version)
    path = {
        "pointer": folder_channel.place.root / "channels/live/pointer.json",  # type: ignore[attr-defined]
        "table_version": object_file(folder_channel, "table_version", second),
        "fingerprint": object_file(
            folder_channel, "fingerprint", folder_channel.fingerprint.identity
        ),
    }[what]
    good = path.read_bytes()
    path.write_bytes(damage(good) if damage(good) != good else good.replace(b":", b": ", 1))
    answer = follower.poll(100.0)
    assert isinstance(answer, Refused)
    assert not answer.lasting
    assert what.split("_", maxsplit=1)[0] in answer.reason
    assert follower.status()["version"] == first
    path.write_bytes(good)
    assert following.given(follower.poll(300.0)).name == second


def test_a_version_that_retention_removed_is_said_and_the_next_is_followed(
    folder_channel: Channel,
) -> None:
    first = folder_channel.promote()
    follower = folder_channel.follower()
    following.given(follower.poll(0.0))
    second = folder_channel.promote()
    object_file(folder_channel, "table_version", second).unlink()
    answer = follower.poll(100.0)
    assert isinstance(answer, Refused)
    assert "no such object" in answer.reason
    assert follower.status()["version"] == first
    # What is in force may lose its objects: the engine has it.
    third = folder_channel.promote()
    assert following.given(follower.poll(300.0)).name == third
    for path in object_file(folder_channel, "table_version", third).parent.iterdir():
        path.unlink()
    assert follower.poll(600.0) == Unchanged()


@pytest.mark.parametrize("kind", ["profile", "acceptance_prior", "qualification"])
@pytest.mark.parametrize("lost", [True, False])
def test_a_rollback_is_followed_although_its_evidence_is_lost(
    folder_channel: Channel, kind: str, lost: bool
) -> None:
    first = folder_channel.promote()
    folder_channel.promote()
    follower = folder_channel.follower()
    new = following.given(follower.poll(0.0))
    older = folder_channel.store.get(type(new.version), first)
    path = object_file(folder_channel, kind, getattr(older.parents, kind))
    good = path.read_bytes()
    path.unlink()
    if not lost:
        path.write_bytes(good[:-1])
    folder_channel.roll_back()
    back = following.given(follower.poll(100.0))
    assert back.name == first
    there = {
        "profile": back.profile,
        "acceptance_prior": back.prior,
        "qualification": back.qualification,
    }
    # The prior is the same in all versions here, so the newest lost it too.
    assert there[kind] is None
    assert all(value is not None for name, value in there.items() if name != kind)
    (note,) = back.notes
    assert f"its {kind} is {'not there' if lost else 'damaged'}" in note
    # Once it is there again, the version is given again, whole.
    assert follower.poll(200.0) == Unchanged()
    path.write_bytes(good)
    later = [follower.poll(300.0 + 100.0 * turn) for turn in range(4)]
    (whole,) = [answer for answer in later if answer != Unchanged()]
    assert following.given(whole).notes == ()


def test_an_old_pointer_put_back_is_refused_and_the_newer_stays(channel: Channel) -> None:
    """A replay, a restored backup, or a stale replica that answers now and then."""
    channel.promote()
    old = channel.place.read("channels/live/pointer.json")
    second = channel.promote()
    new = channel.place.read("channels/live/pointer.json")
    follower = channel.follower()
    assert following.given(follower.poll(0.0)).name == second
    for turn in range(3):
        channel.place.write("channels/live/pointer.json", old)
        answer = follower.poll(100.0 * (2 * turn + 1))
        assert isinstance(answer, Refused)
        assert answer.lasting
        assert "move 1" in answer.reason
        assert "older than move 2" in answer.reason
        channel.place.write("channels/live/pointer.json", new)
        assert follower.poll(100.0 * (2 * turn + 2)) == Unchanged()
    # A real move back has a number of its own.
    channel.roll_back()
    assert following.given(follower.poll(1000.0)).pointer.sequence == 3


def test_a_replay_is_told_from_the_cache_after_a_restart(
    folder_channel: Channel, tmp_path: pathlib.Path
) -> None:
    folder_channel.promote()
    old = folder_channel.place.read("channels/live/pointer.json")
    second = folder_channel.promote()
    folder_channel.follower(cache=tmp_path / "c").poll(0.0)
    folder_channel.place.write("channels/live/pointer.json", old)
    follower = folder_channel.follower(cache=tmp_path / "c")
    new = following.given(follower.poll(0.0))
    assert new.name == second
    assert new.from_cache
    answer = follower.poll(100.0)
    assert isinstance(answer, Refused)
    assert "remove" in answer.reason


def test_two_pointers_with_one_number_are_refused(folder_channel: Channel) -> None:
    folder_channel.promote()
    follower = folder_channel.follower()
    following.given(follower.poll(0.0))
    pointer = Pointer.from_json(folder_channel.place.read("channels/live/pointer.json"))
    fork = pointer.model_copy(update={"reason": "another first move"})
    folder_channel.store.put(fork)
    folder_channel.place.write("channels/live/pointer.json", fork.to_json())
    answer = follower.poll(100.0)
    assert isinstance(answer, Refused)
    assert "not the same as move 1" in answer.reason


def test_a_pointer_that_vanishes_leaves_the_version_in_force(channel: Channel) -> None:
    first = channel.promote()
    follower = channel.follower()
    following.given(follower.poll(0.0))
    channel.place.remove("channels/live/pointer.json")
    answer = follower.poll(100.0)
    assert isinstance(answer, Refused)
    assert "the version in force stays" in answer.reason
    assert follower.status()["version"] == first


def test_an_s3_server_that_is_killed_and_comes_back(
    tmp_path: pathlib.Path, s3_server: S3Server
) -> None:
    server_folder = tmp_path / "server"
    server_folder.mkdir()
    server = start_server(find_server(), server_folder)
    try:
        channel = Channel(S3Prefix(server, "p"), following.make_model(tmp_path / "model"))
        name = channel.promote()
        follower = channel.follower(cache=tmp_path / "cache")
        assert following.given(follower.poll(0.0)).name == name
    finally:
        stop_server(server)
    answer = follower.poll(100.0)
    assert isinstance(answer, Unreachable)
    assert follower.mode == "adapt"
    restarted = channel.follower(cache=tmp_path / "cache")
    assert following.given(restarted.poll(0.0)).from_cache
    port = int(server.endpoint.rpartition(":")[2])
    server = start_server(find_server(), server_folder, port)
    try:
        assert follower.poll(300.0) == Unchanged()
        second = channel.promote()
        assert following.given(follower.poll(600.0)).name == second
        assert following.given(restarted.poll(600.0)).name == second
    finally:
        stop_server(server)


def test_credentials_that_are_wrong_are_a_source_that_cannot_be_read(
    s3_place: S3Prefix, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = Channel(s3_place, following.make_model(tmp_path / "model"))
    name = channel.promote()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    follower = channel.follower()
    answer = follower.poll(0.0)
    assert isinstance(answer, Unreachable)
    assert "check the credentials" in answer.reason
    monkeypatch.undo()
    assert name == channel.store.read_pointer("live")[0].table_version  # type: ignore[union-attr]


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_bytes_whatever_raise_or_move_an_engine(
    folder_channel: Channel, data: st.DataObject
) -> None:
    """One object after the other is replaced by something made of its own pieces."""
    name = "" if folder_channel.number else folder_channel.promote()
    channel, place = folder_channel, folder_channel.place
    pointer, _ = channel.store.read_pointer("live")
    assert pointer is not None
    name = pointer.table_version
    key = data.draw(
        st.sampled_from(
            [
                "channels/live/pointer.json",
                f"objects/table_version/{name}.json",
                f"objects/fingerprint/{pointer.fingerprint}.json",
                f"objects/pointer/{channel.store.read_pointer('live')[1].state}.json",
            ]
        )
    )
    good = place.read(key)
    junk = st.one_of(
        st.binary(max_size=64),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=5),
            lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
            max_leaves=6,
        ).map(lambda value: repr(value).replace("'", '"').encode(errors="replace")),
        st.tuples(st.integers(0, len(good) - 1), st.integers(0, 255)).map(
            lambda at: good[: at[0]] + bytes([at[1]]) + good[at[0] + 1 :]
        ),
    )
    changed = data.draw(junk)
    place.write(key, changed)
    try:
        answer: Answer | Any = channel.follower().poll(0.0)
    finally:
        place.write(key, good)
    if changed != good:
        assert isinstance(answer, STATES), answer
        assert answer.reason
