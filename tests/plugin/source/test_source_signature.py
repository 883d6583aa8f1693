"""Signed channels: whose pointers an engine follows."""

import pathlib
import sys

import pytest

from tabletune.records.pointer import Pointer
from tabletune.store.errors import StoreError
from tabletune.store.signing import (
    KeyUnusable,
    Signer,
    load_signer,
    load_trusted,
    make_key,
    public_path,
    signer_from,
)
from tabletune_vllm.source import Refused, Unchanged
from tests.plugin.source.following import Channel, given
from tests.small_disk import mounted


@pytest.fixture
def key(tmp_path: pathlib.Path) -> pathlib.Path:
    make_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def signer(key: pathlib.Path) -> Signer:
    return load_signer(key)


def refusal(channel: Channel, key: pathlib.Path) -> str:
    answer = channel.follower(public_key=public_path(key)).poll(0.0)
    assert isinstance(answer, Refused), answer
    return answer.reason


def test_a_signed_promotion_is_followed(
    channel: Channel, key: pathlib.Path, signer: Signer
) -> None:
    name = channel.promote(signer=signer)
    follower = channel.follower(public_key=public_path(key))
    new = given(follower.poll(0.0))
    assert (new.name, new.pointer.signed_by) == (name, signer.key_id)
    channel.promote(signer=signer)
    given(follower.poll(100.0))
    channel.roll_back(signer)
    assert given(follower.poll(200.0)).name == name
    assert follower.status()["signed_by"] == [signer.key_id]


def test_nothing_unsigned_is_followed_and_signing_it_helps(
    folder_channel: Channel, key: pathlib.Path, signer: Signer
) -> None:
    name = folder_channel.promote()
    assert "no signature" in refusal(folder_channel, key)
    # The same version, put in force once more and signed now.
    pointer, _ = folder_channel.store.read_pointer("live")
    assert pointer is not None
    version = folder_channel.store.get(type(folder_channel.version()), name)
    folder_channel.promote(version, signer)
    follower = folder_channel.follower(public_key=public_path(key))
    assert given(follower.poll(0.0)).name == name


def test_a_roll_back_skips_the_move_that_only_signed(
    folder_channel: Channel, signer: Signer
) -> None:
    first, second = folder_channel.promote(), folder_channel.promote()
    version = folder_channel.store.get(type(folder_channel.version()), second)
    folder_channel.promote(version, signer)
    folder_channel.roll_back(signer)
    pointer, _ = folder_channel.store.read_pointer("live")
    assert pointer is not None
    assert pointer.table_version == first


def test_a_stranger_s_signature_counts_for_nothing(
    folder_channel: Channel, key: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    make_key(tmp_path / "stranger")
    stranger = load_signer(tmp_path / "stranger")
    folder_channel.promote(signer=stranger)
    assert f"one of key {stranger.key_id}" in refusal(folder_channel, key)
    # Keys are exchanged by trusting both for a while.
    both = tmp_path / "both.pub"
    both.write_bytes(
        public_path(key).read_bytes() + public_path(tmp_path / "stranger").read_bytes()
    )
    given(folder_channel.follower(public_key=both).poll(0.0))


@pytest.mark.parametrize(
    "change",
    [
        {"table_version": "a" * 64},
        {"sequence": 9},
        {"reason": "another"},
        {"channel": "canary"},
        {"moved_at": "2027-01-01T00:00:00+00:00"},
    ],
)
def test_every_field_is_signed(
    folder_channel: Channel, key: pathlib.Path, signer: Signer, change: dict[str, object]
) -> None:
    """Who can write to the source but has no key: changes the pointer and its object."""
    folder_channel.promote(signer=signer)
    folder_channel.promote(signer=signer)
    pointer, _ = folder_channel.store.read_pointer("live")
    assert pointer is not None
    forged = Pointer.model_validate(pointer.model_dump() | change)
    folder_channel.store.put(forged)
    folder_channel.place.write("channels/live/pointer.json", forged.to_json())
    reason = refusal(folder_channel, key)
    assert "that is not of this pointer" in reason or "never put in force here" in reason
    assert ("never put in force" in reason) == ("channel" in change)


def test_a_signed_pointer_replayed_is_refused(
    folder_channel: Channel, key: pathlib.Path, signer: Signer
) -> None:
    folder_channel.promote(signer=signer)
    old = folder_channel.place.read("channels/live/pointer.json")
    second = folder_channel.promote(signer=signer)
    follower = folder_channel.follower(public_key=public_path(key))
    assert given(follower.poll(0.0)).name == second
    new = folder_channel.place.read("channels/live/pointer.json")
    folder_channel.place.write("channels/live/pointer.json", old)
    answer = follower.poll(100.0)
    assert isinstance(answer, Refused)
    assert "older than move 2" in answer.reason
    folder_channel.place.write("channels/live/pointer.json", new)
    assert follower.poll(200.0) == Unchanged()


def test_the_signature_of_another_channel_does_not_pass(
    folder_channel: Channel, key: pathlib.Path, signer: Signer
) -> None:
    folder_channel.promote(signer=signer)
    data = folder_channel.place.read("channels/live/pointer.json")
    folder_channel.place.write("channels/canary/pointer.json", data)
    from tabletune_vllm.source import open_follower

    follower = open_follower(
        folder_channel.store.url,
        "canary",
        "adapt",
        folder_channel.engine(),
        public_key=public_path(key),
    )
    answer = follower.poll(0.0)
    assert isinstance(answer, Refused)
    assert "a state of channel 'live'" in answer.reason


def test_a_cached_version_is_checked_as_well(
    folder_channel: Channel, key: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder_channel.promote()
    folder_channel.follower(cache=tmp_path / "c").poll(0.0)
    (tmp_path / "store").rename(tmp_path / "away")
    follower = folder_channel.follower(cache=tmp_path / "c", public_key=public_path(key))
    assert "mount it" in follower.poll(0.0).reason
    assert "no signature" in str(follower.status()["cache_problem"])


def test_without_the_library_nothing_is_followed(
    folder_channel: Channel, key: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_channel.promote()
    module = "cryptography.hazmat.primitives.asymmetric"
    monkeypatch.setitem(sys.modules, module, None)
    assert "install tabletune[signatures]" in refusal(folder_channel, key)


def test_a_left_over_public_key_is_kept_and_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "key"
    public_path(path).write_text("of a key that somebody may still use")
    for _ in range(2):  # the first failure is in nobody's way
        with pytest.raises(
            KeyUnusable, match=rf"found {public_path(path)} there already; .*move it"
        ):
            make_key(path)
    assert not path.exists()
    assert public_path(path).read_text() == "of a key that somebody may still use"
    public_path(path).unlink()
    make_key(path)
    assert load_signer(path).key_id in load_trusted(public_path(path)).keys


def test_a_key_that_cannot_be_written_whole_leaves_nothing(tmp_path: pathlib.Path) -> None:
    with mounted(tmp_path / "disk", 4) as folder:  # one page: room for the private half
        with pytest.raises(KeyUnusable, match="No space left"):
            make_key(folder / "key")
        assert list(folder.iterdir()) == []
    with pytest.raises(KeyUnusable, match=r"No such file or directory .*nowhere"):
        make_key(tmp_path / "nowhere" / "key")


def test_keys_are_kept_safe(tmp_path: pathlib.Path, key: pathlib.Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyUnusable, match="never overwritten"):
        make_key(key)
    key.chmod(0o644)
    with pytest.raises(KeyUnusable, match="chmod 600"):
        load_signer(key)
    key.chmod(0o600)
    assert signer_from({}) is None
    signer = signer_from({"TABLETUNE_SIGNING_KEY": str(key)})
    assert signer is not None
    assert list(load_trusted(public_path(key)).keys) == [signer.key_id]
    junk = tmp_path / "junk"
    junk.write_bytes(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    junk.chmod(0o600)
    public_path(key).chmod(0o600)
    for load, other in ((load_signer, public_path(key)), (load_trusted, key)):
        for path in (junk, tmp_path / "none", other):
            with pytest.raises(StoreError, match="key new"):
                load(path)
