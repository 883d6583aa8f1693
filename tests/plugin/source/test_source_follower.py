"""What a follower gives while nothing is wrong: promotions, roll-backs, the switch."""

import gc
import pathlib
import weakref

import pytest

from tabletune.records.control import MODES, Mode
from tabletune.records.table import TableVersion
from tabletune_vllm.source import Refused, SwitchedOff, Unchanged, open_follower
from tests.faulty_server import FaultyServer
from tests.plugin.source.following import Channel, given


def test_a_promotion_is_given_once_with_all_that_it_came_from(channel: Channel) -> None:
    name = channel.promote()
    follower = channel.follower()
    new = given(follower.poll(0.0))
    assert (new.name, new.pointer.sequence, new.from_cache) == (name, 1, False)
    assert new.fingerprint.matches(channel.fingerprint)
    assert new.profile is not None
    assert new.prior is not None
    assert new.qualification is not None
    assert new.notes == ()
    assert [follower.poll(at) for at in (20.0, 40.0)] == [Unchanged(), Unchanged()]
    second = channel.promote()
    assert given(follower.poll(60.0)).name == second
    assert follower.status()["version"] == second


def test_a_rollback_is_followed(channel: Channel) -> None:
    first, second = channel.promote(), channel.promote()
    follower = channel.follower()
    assert given(follower.poll(0.0)).name == second
    channel.roll_back()
    back = given(follower.poll(20.0))
    assert (back.name, back.pointer.action, back.pointer.sequence) == (first, "rollback", 3)


def test_over_http_it_is_the_same(folder_channel: Channel, web: FaultyServer) -> None:
    name = folder_channel.promote()
    follower = folder_channel.follower(web.address)
    assert given(follower.poll(0.0)).name == name
    web.requests.clear()
    assert follower.poll(20.0) == Unchanged()
    # A poll that finds nothing new costs two small questions.
    assert [path for _, path in web.requests] == [
        "channels/live/control.json",
        "channels/live/pointer.json",
    ]
    folder_channel.promote()
    assert given(follower.poll(40.0)).pointer.sequence == 2
    reason = follower.tell("engine-1", b"{}")
    assert reason is not None
    assert "read only" in reason


def test_a_channel_without_a_version_waits_for_its_first(channel: Channel) -> None:
    follower = channel.follower()
    answer = follower.poll(0.0)
    if isinstance(answer, Refused):  # S3: an empty prefix; a folder that is missing is down
        assert "has no version" in answer.reason
    name = channel.promote()
    assert given(follower.poll(100.0)).name == name


def test_a_pointer_that_flaps_is_followed_move_by_move(channel: Channel) -> None:
    follower = channel.follower()
    names = [channel.promote(), channel.promote()]
    assert given(follower.poll(0.0)).name == names[1]
    for turn in range(4):
        version = channel.store.get(TableVersion, names[turn % 2])
        channel.promote(version)
        assert given(follower.poll(20.0 * (turn + 1))).name == names[turn % 2]


def test_two_followers_of_one_source_see_the_same(channel: Channel) -> None:
    followers = [channel.follower(), channel.follower()]
    for turn in range(3):
        name = channel.promote()
        assert [given(f.poll(40.0 * turn)).name for f in followers] == [name, name]
        assert [f.poll(40.0 * turn + 20.0) for f in followers] == [Unchanged(), Unchanged()]


def test_the_switch_acts_at_the_next_poll_and_lifts(channel: Channel) -> None:
    name = channel.promote()
    channel.switch("off", "smoke in rack 4")
    follower = channel.follower()
    answer = follower.poll(0.0)
    assert isinstance(answer, SwitchedOff)
    assert "smoke in rack 4" in answer.reason
    assert "set by ops" in answer.reason
    assert follower.mode == "off"
    channel.switch("adapt")
    assert given(follower.poll(20.0)).name == name
    assert follower.mode == "adapt"
    channel.switch("off")
    assert isinstance(follower.poll(40.0), SwitchedOff)
    channel.promote()
    assert isinstance(follower.poll(60.0), SwitchedOff)
    channel.switch("follow")
    assert given(follower.poll(80.0)).pointer.sequence == 2
    assert follower.mode == "follow"
    channel.place.remove("channels/live/control.json")
    follower.poll(100.0)
    assert follower.mode == "adapt"


@pytest.mark.parametrize("ceiling", MODES)
@pytest.mark.parametrize("mode", MODES)
def test_the_switch_lowers_and_never_raises(
    folder_channel: Channel, ceiling: Mode, mode: Mode
) -> None:
    folder_channel.promote()
    folder_channel.switch(mode)
    follower = folder_channel.follower(mode=ceiling)
    assert follower.mode == ceiling
    follower.poll(0.0)
    assert MODES.index(follower.mode) == min(MODES.index(ceiling), MODES.index(mode))


@pytest.mark.parametrize("data", [b"", b"{", b'{"mode":"follow"}', b"x" * 20_000])
def test_a_damaged_switch_is_off_at_first_and_else_what_it_was(
    folder_channel: Channel, data: bytes
) -> None:
    folder_channel.promote()
    folder_channel.place.write("channels/live/control.json", data)
    follower = folder_channel.follower()
    answer = follower.poll(0.0)
    assert follower.mode == "off" or "at most 16384 bytes" in answer.reason
    assert isinstance(answer, SwitchedOff | Refused)
    folder_channel.switch("follow")
    given(follower.poll(20.0))
    folder_channel.place.write("channels/live/control.json", data)
    follower.poll(40.0)
    assert follower.mode == "follow"


def test_what_an_engine_tells_is_one_object_under_its_name(channel: Channel) -> None:
    channel.promote()
    follower = channel.follower()
    assert follower.tell("engine-1", b'{"a":1}') is None
    assert follower.tell("engine-1", b'{"a":2}') is None
    assert channel.place.read("live/live/engine-1.json") == b'{"a":2}'
    for name, data, problem in [
        ("../../evil", b"", "an engine's name"),
        ("engine-1", b"x" * 300_000, "more than"),
    ]:
        reason = follower.tell(name, data)
        assert reason is not None
        assert problem in reason


def test_settings_that_cannot_work_are_said_and_not_raised(
    folder_channel: Channel, tmp_path: pathlib.Path
) -> None:
    engine = folder_channel.engine()
    folder_channel.promote()
    broken = [
        open_follower("gopher://x", "live", "adapt", engine),
        open_follower(folder_channel.store.url, "No Channel", "adapt", engine),
        open_follower(
            folder_channel.store.url, "live", "adapt", engine, public_key=tmp_path / "none.pub"
        ),
    ]
    reasons = ["file:///srv/tables", "a channel name", "none.pub"]
    for follower, reason in zip(broken, reasons, strict=True):
        answer = follower.poll(0.0)
        assert isinstance(answer, Refused)
        assert reason in answer.reason
        assert follower.tell("engine-1", b"") is not None
        assert follower.status()["answer"] == "Refused"
    assert open_follower(folder_channel.store.url, "live", "sideways", engine).mode == "off"


def test_a_version_is_not_kept_once_it_was_given(folder_channel: Channel) -> None:
    folder_channel.promote()
    follower = folder_channel.follower()
    version = weakref.ref(given(follower.poll(0.0)))
    gc.collect()
    assert version() is None
    assert follower.status()["answer"] == "NewVersion"
