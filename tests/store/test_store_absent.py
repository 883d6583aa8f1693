"""Commands on a place that is no store, and on a channel that is none: told, and nothing made."""

import pathlib
from collections.abc import Sequence

import pytest

from tabletune.commands.exit_codes import ExitCode
from tabletune.records.control import Control
from tabletune.store.errors import NoStore
from tabletune.store.opening import open_existing
from tabletune.store.promotion import promote
from tests.commands.called import Called, call
from tests.store.places import Place
from tests.store.world import AT, World

VERSION = "0123456789ab"

#: Every command that takes --store and makes no store.
ON_A_STORE = (
    ("show",),
    ("diff", VERSION, "live"),
    ("promote", VERSION),
    ("rollback",),
    ("prune",),
    ("prune", "--apply"),
    ("control",),
    ("control", "off"),
)


def words(arguments: Sequence[str]) -> str:
    return " ".join(arguments)


def refused(*arguments: str) -> Called:
    ended = call(*arguments, "--json")
    assert ended.status == ExitCode.STORE, ended.output
    return ended


@pytest.mark.parametrize("arguments", ON_A_STORE, ids=words)
def test_no_store_is_told_and_none_is_made(place: Place, arguments: Sequence[str]) -> None:
    """An empty prefix of a bucket, or a folder that is missing: a name with a slip in it."""
    url = place.open().url
    error = refused(*arguments, "--store", url).json["error"]
    assert error["kind"] == "NoStore"
    assert error["message"].startswith(f"expected a table store at {url}, found nothing there; ")
    assert "--store" in error["message"]
    assert place.snapshot() == {}


@pytest.mark.parametrize("arguments", ON_A_STORE, ids=words)
def test_nor_in_an_empty_folder_or_beside_a_run(
    tmp_path: pathlib.Path, arguments: Sequence[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for option in (("--store", str(tmp_path / "empty")), ("--out", str(tmp_path / "tyop"))):
        assert refused(*arguments, *option).json["error"]["kind"] == "NoStore"
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_a_doctor_asked_about_no_store_finds_none(tmp_path: pathlib.Path) -> None:
    """A run's folder that has no store yet is none the worse for it."""
    out, root = tmp_path / "out", str(tmp_path / "engines")
    out.mkdir()
    asked = ("doctor", "--root", root, "--out", str(out), "--json")
    (named,) = of_store(call(*asked, "--store", str(tmp_path / "tyop")))
    assert (named["state"], "found nothing there" in named["found"]) == ("problem", True)
    (usual,) = of_store(call(*asked))
    assert (usual["state"], usual["found"]) == ("ok", "none yet; a run makes it")
    assert [path.name for path in tmp_path.rglob("*")] == ["out"]


def of_store(ended: Called) -> list[dict[str, str]]:
    return [finding for finding in ended.json if finding["subject"] == "store"]


def test_a_store_is_there_from_its_first_record_on(world: World) -> None:
    assert open_existing(world.store.url).url == world.store.url
    assert world.store.exists()


def test_a_store_that_was_opened_before_it_was_made_is_seen(place: Place) -> None:
    early, late = place.open(), place.open()
    assert not early.exists()
    with pytest.raises(NoStore):
        open_existing(early.url)
    late.write_control(control_of("live"))
    assert early.exists()


def control_of(channel: str) -> Control:
    return Control(channel=channel, mode="off", set_at=AT, set_by="a test", reason="a test")


@pytest.mark.parametrize("arguments", [("rollback",), ("control",), ("control", "off")], ids=words)
def test_a_channel_that_is_none_is_told_with_those_there(
    world: World, arguments: Sequence[str]
) -> None:
    version, verdict = world.candidate()
    promote(world.store, "live", version, verdict, AT, "a test", "first")
    before = world.place.snapshot()
    where = ("--store", world.store.url, "--channel", "liev")
    message = refused(*arguments, *where).json["error"]["message"]
    assert "'liev'" in message
    assert "channels there: live" in message
    assert world.place.snapshot() == before
    for name in ("show", "promote"):
        assert "channels: live" in refused(name, "liev", *where[:2]).json["error"]["message"]


def test_a_first_promotion_to_a_channel_says_so(world: World) -> None:
    """A canary's begins like that, and so does a slip."""
    version, verdict = world.candidate()
    promote(world.store, "live", version, verdict, AT, "a test", "first")
    where = ("--store", world.store.url)
    moved = call("promote", "live", "--channel", "liev", *where, "--json")
    assert moved.json["moved"]
    assert moved.json["notes"] == ["channel liev had no version before; channels there: live"]
    again = call("promote", "live", "--channel", "liev", *where, "--json")
    assert again.json["notes"] == [f"{version[:12]} is already in force on liev"]


def test_a_switch_that_was_set_is_told_without_any_table(world: World) -> None:
    """Before the first promotion of all it may be set, to be careful from the start."""
    where = ("--store", world.store.url)
    ended = call("control", "shadow", *where)
    assert ended.status == 0
    assert "channels there: none" in ended.errors
    version, verdict = world.candidate()
    promote(world.store, "canary", version, verdict, AT, "a test", "first")
    assert call("control", *where, "--json").json["control"]["mode"] == "shadow"
