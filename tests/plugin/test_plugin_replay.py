"""What the plugin writes down replays exactly; what it tells, `top` shows."""

import pathlib

import pytest
from live_world import BOOT, World, facts, target
from rich.console import Console

from tabletune.commands.top_view import Seen, view
from tabletune.pipeline.replay import Replay, replay, runs_of
from tabletune.pipeline.why import why
from tabletune.records.decision_log import Trace, parse_trace
from tabletune_vllm.live.decision_log import DecisionLog

ONE, TWO = [0, 1, 1, 1, 1], [0, 2, 2, 2, 2]


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "trace.jsonl"


@pytest.fixture
def world(path: pathlib.Path) -> World:
    return World("adapt", DecisionLog(path, facts(), "live"))


def read(path: pathlib.Path) -> list[list[Trace]]:
    files = [path, *path.parent.glob(f"{path.name}.[0-9]*")]
    traces: list[Trace] = []
    for each in files:
        with open(each, "rb") as lines:
            traces.append(parse_trace(lines))
    return runs_of(traces)


def replayed(path: pathlib.Path) -> list[Replay]:
    results = [replay(files) for files in read(path)]
    assert all(result.same for result in results), results
    return results


def test_a_log_with_everything_in_it_replays(world: World, path: pathlib.Path) -> None:
    world.poll(target(BOOT))
    world.ticks(2, 20)
    world.poll(target(TWO, "v2"))
    world.ticks(4, 10, accepted=0)
    world.follower.mode = "follow"
    world.ticks(4, 5, accepted=0)
    world.follower.mode = "shadow"
    world.ticks(4, 5, accepted=0)
    world.runtime.pin({"draft_length": 0})
    world.ticks(4, 3, accepted=0)
    world.runtime.pin({"draft_length": None})
    world.follower.mode = "adapt"
    world.ticks(4, 30, accepted=0)
    world.poll("a refused version")
    world.following.close()
    (result,) = replayed(path)
    assert result.promotions == 1
    assert result.kinds["swap"] >= 2  # the promotion, and away from drafts that nobody accepts
    events = {note.event for note in result.notes}
    assert events >= {"mode", "suspended", "resumed", "refused", "off"}
    answer = why(read(path)[0], None, 4)
    assert answer.draft_length == world.table()[4] == 0
    assert answer.mode == "adapt"


def test_a_controller_that_is_made_anew_begins_another_log(
    world: World, path: pathlib.Path
) -> None:
    world.poll(target(BOOT))
    world.ticks(2, 10)
    world.poll(target(ONE, "v2", promoted=None))  # without its evidence: followed, not adapted
    world.ticks(2, 3)
    world.poll(target(TWO, "v3"))
    world.ticks(2, 10)
    first, second = replayed(path)
    assert min(first.ticks, second.ticks) >= 10


def test_top_shows_what_the_plugin_tells(world: World) -> None:
    world.poll(target(BOOT))
    world.ticks(4, 20, accepted=0)
    world.poll("version abc: for another engine")
    world.runtime.pin({"draft_length": 1})
    world.ticks(4, 1, accepted=0)
    status = dict(world.runtime.status()) | {"controller": world.following.published}
    console = Console(width=80, highlight=False)
    with console.capture() as captured:
        console.print(view(Seen("u", status, world.wall())))
    text = captured.get()
    for words in ("mode adapt", "version v1", "live survival", "exploring cost", "guard",
                  "swap", "version abc: for another engine", "suspended: "):  # fmt: skip
        assert words in text, (words, text)
