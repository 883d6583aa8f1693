"""control, key, show and promote on the command line, over a folder and over S3."""

import json
import pathlib
from typing import Any

import pytest
from typer.testing import CliRunner

from tabletune.commands.app import app
from tabletune.store.open_snapshots import open_snapshots
from tabletune.store.signing import KeyUnusable, load_trusted
from tests.store.world import World, make_version


def run(*arguments: str, code: int = 0) -> Any:
    """The JSON that a command prints."""
    done = CliRunner().invoke(app, [*arguments, "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_the_switch_is_set_and_read(world: World) -> None:
    where = ("--store", world.store.url)
    assert run("control", *where) == {"channel": "live", "control": None}
    set_to = run("control", "off", "--reason", "smoke", "--by", "ops", *where)["control"]
    assert (set_to["mode"], set_to["reason"], set_to["set_by"]) == ("off", "smoke", "ops")
    assert run("control", "--channel", "canary", *where)["control"] is None
    assert run("control", "adapt", *where)["control"]["mode"] == "adapt"
    found = world.store.read_control("live")
    assert found is not None
    assert found.mode == "adapt"
    world.place.write("channels/live/control.json", b"{")
    assert run("control", "off", *where)["control"]["mode"] == "off"  # and repairs it


def test_a_mode_that_is_none_is_refused(world: World) -> None:
    from tabletune.pipeline.request import RequestError

    with pytest.raises(RequestError, match="off, shadow, follow, adapt"):
        run("control", "on", "--store", world.store.url)
    assert world.store.read_control("live") is None


def test_a_promotion_is_signed_where_a_key_is_named(
    world: World, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    made = run("key", "new", str(key))
    monkeypatch.setenv("TABLETUNE_SIGNING_KEY", made["private"])
    where = ("--store", world.store.url)
    trusted = load_trusted(pathlib.Path(made["public"]))
    versions = []
    for _ in range(2):
        version, _verdict = world.candidate()
        assert run("promote", version, *where)["moved"]
        trusted.check(world.place.read("channels/live/pointer.json"))
        versions.append(version)
    assert run("rollback", *where)["table_version"] == versions[0]
    trusted.check(world.place.read("channels/live/pointer.json"))
    assert run("show", *where)["table_version"] == versions[0]


def test_what_engines_told_is_found_in_every_store(world: World) -> None:
    reader = open_snapshots(world.store.url)
    assert reader.list_snapshots("live") == ()
    world.place.write("live/live/engine-1.json", b"{}")
    world.place.write("live/canary/engine-2.json", b"{}")
    assert reader.list_snapshots("live") == ("engine-1",)


def test_a_versions_sizes_for_joining_prompts_are_shown(folder_world: World) -> None:
    version = make_version(0)
    captured = {"graph_mode": "FULL_AND_PIECEWISE", "capture_sizes": (4, 16, 40), "graph_count": 6}
    plan = version.plan.model_copy(update=captured)
    name = folder_world.store.put(version.model_copy(update={"plan": plan}))
    done = CliRunner().invoke(app, ["show", name, "--store", folder_world.store.url])
    assert done.exit_code == 0, done.output
    assert "3 capture sizes, 6 graphs" in done.output
    assert "of the sizes, 40 tokens are for steps in which prompts join" in done.output


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_key_needs_a_files_name(path: str) -> None:
    with pytest.raises(KeyUnusable, match="name a file"):
        run("key", "new", path)
