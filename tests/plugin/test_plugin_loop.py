"""The loop beside the engine: promotions, modes, hands on the table, faults."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from live_world import BOOT, K_MAX, SIZE, World, facts, target

from tabletune_vllm.live.decision_log import DecisionLog
from tabletune_vllm.live.words import Times

ONE, TWO = [0, 1, 1, 1, 1], [0, 2, 2, 2, 0]


def test_a_promotion_is_followed_within_one_poll_and_rolled_back() -> None:
    world = World()
    world.poll()
    assert world.table() == BOOT
    world.poll(target(ONE, "v1"))
    assert world.table() == ONE
    assert [world.in_force[b] for b in (1, 4)] == [1, 1]
    world.ticks(2, 3)
    world.poll(target(TWO, "v2"))
    assert world.table() == TWO
    world.poll(target(ONE, "v1"))
    assert world.table() == ONE
    assert world.runtime.swaps == 3


def test_the_switch_of_the_source_acts_within_one_poll() -> None:
    world = World()
    world.poll(target(ONE))
    world.follower.mode = "off"
    world.poll()
    assert world.table() == BOOT
    world.ticks(2, 2)
    assert world.table() == BOOT
    world.follower.mode = "follow"
    world.poll()
    assert world.table() == ONE


def test_nothing_is_put_in_force_before_the_switch_was_read() -> None:
    world = World()
    world.loop.take(target(ONE), _at(world))
    assert world.table() == BOOT


def test_shadow_decides_and_swaps_nothing() -> None:
    world = World(mode="shadow")
    world.poll(target([0, 0, 0, 0, 0]))
    world.ticks(2, 20)
    assert world.table() == BOOT
    assert world.runtime.swaps == 0
    recent = world.loop.journal.recent()
    assert isinstance(recent["decisions_by_kind"], dict)
    assert recent["decisions_by_kind"].get("swap", 0) >= 1
    assert not any(entry["applied"] for entry in recent["last_decisions"])  # type: ignore[union-attr]


def test_adapt_repairs_a_bad_table_and_follow_does_not() -> None:
    worlds = {mode: World(mode=mode) for mode in ("adapt", "follow")}
    for world in worlds.values():
        world.poll(target([0, 0, 0, 0, 0]))
        world.ticks(2, 20)
    assert worlds["follow"].table() == [0, 0, 0, 0, 0]
    assert worlds["adapt"].table()[2] >= 2
    assert worlds["adapt"].runtime.active


def test_a_turn_lets_the_engines_thread_have_the_interpreter_between_its_parts() -> None:
    world, breaths = World(mode="adapt"), [0]

    def breathe() -> None:
        breaths[0] += 1

    world.loop.breathe = breathe
    world.poll()
    before = breaths[0]
    world.poll(target([0, 0, 0, 0, 0]))
    world.ticks(2, 5)
    assert breaths[0] - before >= 5 * 4, "after reading, summing up, deciding, and at the end"
    assert world.runtime.active


def test_what_is_set_by_hand_suspends_the_controller_until_it_is_lifted() -> None:
    world = World(mode="adapt")
    world.poll(target([0, 0, 0, 0, 0]))
    world.runtime.pin({"draft_length": 1})
    world.ticks(2, 5)
    assert "pinned by hand" in str(world.following.status()["suspended"])
    # One turn before the pin, none under it.
    assert world.loop.journal.decisions_by_kind == {"hold": 1}
    assert {world.in_force[2] for _ in range(5)} == {1}
    # A promotion meanwhile waits behind the pin.
    world.poll(target(TWO, "v2"))
    assert world.in_force[2] == 1
    world.runtime.pin({"draft_length": None})
    assert world.in_force[2] == 2
    world.ticks(2, 2)
    assert world.loop.suspended is None
    assert sum(world.loop.journal.decisions_by_kind.values()) >= 2
    world.runtime.swap_table({"ranges": [[1, SIZE, 3]]})
    world.ticks(2, 1)
    assert "table is set by hand" in str(world.following.published["suspended"])
    world.runtime.swap_table({"ranges": None})
    assert world.table() == list(world.runtime.base)


def test_a_schedule_that_is_over_gives_way_to_the_controller() -> None:
    world = World(mode="adapt")
    forbidden = frozenset({(3, 0)})
    world.poll(target([0, 3, 3, 0, 0], forbidden=forbidden))
    world.runtime.pin({"schedule": [[1, 2]]})
    world.ticks(2, 2)
    assert world.loop.suspended is None
    assert world.in_force[1] == 3
    assert [world.in_force[4] for _ in range(2)] == [1, 0]
    world.poll(target(ONE, "v2"))
    assert world.in_force[4] == 1


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (target([0, 1, 1], promoted=None), "a table for 4 requests"),
        (target([0, 9, 1, 1, 1], promoted=None), "9 at batch size 1"),
        (target(ONE, envelope=lambda b, k: b < 3), "draft length 1 at batch size 3"),
    ],
)
def test_a_version_that_does_not_fit_is_refused_and_the_one_before_stays(
    bad: object, why: str
) -> None:
    world = World()
    world.poll(target(TWO, "v0"))
    for _ in range(3):
        world.poll(bad)
    assert world.table() == TWO
    assert world.runtime.active
    assert world.loop.target is not None
    assert world.loop.target.version == "v0"
    (refusal,) = world.following.published["last_refusals"]  # type: ignore[misc]
    assert refusal["times"] == 3  # type: ignore[index]
    assert why in refusal["reason"]  # type: ignore[index]


def test_a_length_without_a_graph_is_refused_on_a_gpu() -> None:
    # The boot table has 0, 1 and 3: for 2 no graph was captured.
    world = World(runner="V2", device="cuda")
    world.poll(target(TWO))
    assert world.table() == BOOT
    assert "[0, 1, 3]" in str(world.following.published["last_refusals"])
    world.poll(target(ONE))
    assert world.table() == ONE


def test_a_refusal_of_the_follower_is_kept_and_changes_nothing() -> None:
    world = World()
    world.poll(target(ONE), "another fingerprint")
    assert world.table() == ONE
    assert "another fingerprint" in str(world.following.published["last_refusals"])


def test_forbidden_transitions_are_held_at_every_step() -> None:
    world = World()
    world.poll(target([0, 3, 3, 0, 0], forbidden=frozenset({(3, 0)})))
    lengths = [world.in_force[b] for b in (1, 4, 4, 1, 1, 3, 2, 4)]
    assert (3, 0) not in set(pairwise(lengths))
    assert (0, 3) not in set(pairwise(lengths))
    assert lengths[:3] == [3, 1, 0]


def test_a_version_without_evidence_is_followed_and_not_adapted() -> None:
    world = World(mode="adapt")
    world.poll(target(ONE, promoted=None, notes=("the profile is lost",)))
    world.ticks(2, 10)
    assert world.table() == ONE
    assert world.following.published["state"] is None
    assert world.following.published["notes"] == ["the profile is lost"]
    world.poll(target([0, 0, 0, 0, 0], "v2"))
    world.ticks(2, 20)
    assert world.table()[2] >= 2


def test_clock_jumps_and_impossible_records_do_no_harm() -> None:
    world = World(mode="adapt")
    world.poll(target(ONE))
    world.ticks(2, 5)
    for jump_s in (1e6, -2e6, 3600.0):
        world.clock.now_s += jump_s
        world.ticks(2, 3)
    ring = world.runtime.observer.ring
    good = [0.5, 0.01, 0.0, 2, 1, 1, 4, 0, 0, 2, 2, 2, 1, 1, 2, 0, 4, 2, 0, 0, -1, -1, 0, 0]
    for drafted, accepted in (
        ([2, 0, 0], [5, 0, 0]),
        ([-1, 0, 0], [-3, 0, 0]),
        ([1, 2, 0], [0] * 3),
    ):
        ring.append(*good, *drafted, *accepted)
    ring.append(0.5, -1.0, *good[2:], 2, 0, 0, 1, 0, 0)
    ring.append(float("nan"), 0.01, *good[2:], 2, 0, 0, 1, 0, 0)
    world.clock.now_s += 1.0
    world.following.turn()
    assert world.following.published["steps_implausible"] >= 5  # type: ignore[operator]
    assert world.runtime.active
    world.ticks(2, 3)
    assert set(world.table()) <= set(range(K_MAX + 1))


def test_steps_that_were_overwritten_are_counted_and_left_out() -> None:
    world = World(mode="adapt")
    world.poll(target(ONE))
    world.serve(2, 100.0)
    world.following.turn()
    assert world.following.published["steps_lost"] > 0  # type: ignore[operator]
    assert world.loop.observation is not None
    assert world.loop.observation.steps == 4096


def test_a_forked_child_starts_its_threads_at_its_first_step() -> None:
    world = World()
    started: list[int] = []
    world.runtime._lock.acquire()
    world.runtime.orphan(lambda: started.append(1))
    world.serve(2, 0.1)
    assert started == [1]
    assert world.runtime.pin({"draft_length": 1})["pin"] == {"draft_length": 1}


def test_the_status_is_plain_values() -> None:
    world = World(mode="adapt")
    world.runtime.live_status = lambda: world.following.published
    world.poll(target(ONE))
    world.ticks(2, 5)
    status = json.loads(json.dumps(world.runtime.status()))
    controller = status["controller"]
    assert (controller["mode"], controller["version"]) == ("adapt", "v1")
    assert controller["state"]["survival"][0] > 0.5
    assert controller["follower"] == {"polls": "fake"}


def test_the_decision_log_holds_every_tick(tmp_path: Path) -> None:
    path = tmp_path / "log" / "trace.jsonl"
    world = World(mode="adapt", log=DecisionLog(path, facts(), "live"))
    world.poll(target([0, 0, 0, 0, 0]))
    world.ticks(2, 10)
    world.poll(target(TWO, "v2"))
    world.runtime.pin({"draft_length": 1})
    world.ticks(2, 1)
    world.following.close()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    kinds = [line["line"] for line in lines]
    assert kinds[0] == "header"
    assert kinds.count("tick") == 11
    assert kinds.count("promote") == 1
    assert {line["event"] for line in lines if line["line"] == "note"} >= {"mode", "suspended"}
    assert lines[0]["promoted"]["version"] == "v1"


def test_a_decision_outside_the_envelope_is_never_put_in_force() -> None:
    world = World(mode="adapt")
    world.poll(target(ONE))
    assert world.loop.controller is not None
    world.loop.controller.table = (9, 9, 9, 9)
    with pytest.raises(Exception, match="draft lengths of"):
        world.loop._put_in_force("a fault")
    assert world.table() == ONE


def _at(world: World) -> Times:
    return Times(world.clock.now_s, world.wall())
