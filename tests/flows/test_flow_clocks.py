"""Flows on hosts whose clocks are an hour off: what was promoted stays in order, and a gate that
refuses what another clock dated says so."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tabletune.maintain.gates import parse_moment
from tabletune.measure.clock import SystemClock
from tabletune.records.pointer import Pointer
from tabletune.records.verdict import Verdict
from tabletune.store.history import describe_history
from tests.flows.drills import reaped, retune, sure, tracked_once
from tests.flows.world import FlowWorld

pytestmark = [pytest.mark.stack, pytest.mark.drill]  # four retunes in all


@pytest.fixture
def clock_off(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], float]], None]:
    """Sets the calendar that flows go by; what is given says how many hours it is ahead now."""

    def set_off(hours: Callable[[], float]) -> None:
        def utc(self: SystemClock) -> str:
            now = datetime.now(UTC) + timedelta(hours=hours())
            return now.isoformat(timespec="seconds")

        monkeypatch.setattr(SystemClock, "utc", utc)

    return set_off


def test_hosts_an_hour_behind_and_ahead_promote_one_after_the_other(
    world: FlowWorld, clock_off: Callable[[Callable[[], float]], None]
) -> None:
    sure(world)
    world.configure(gate={"approval": "never"})  # other sizes mean that engines start differently
    moves: list[Pointer] = []
    for size, hours in ((4, 0.0), (5, -1.0), (6, 1.0)):
        world.configure(max_num_seqs=size)  # other settings are worth a table of their own
        clock_off(lambda hours=hours: hours)
        result = retune(world)
        assert result["outcome"] == "Promoted", result
        pointer = world.pointer()
        assert pointer is not None
        assert abs(ahead_h(pointer.moved_at) - hours) < 0.5
        moves.append(pointer)
    clock_off(lambda: 0.0)
    boots = len(world.engine.boots())
    assert retune(world)["outcome"] == "Unchanged", (
        "a table that is dated in the future is in force"
    )
    assert len(world.engine.boots()) == boots
    assert list(world.store.history("live")) == moves[::-1], "in the order of the moves"
    assert [line.partition(".")[0] for line in describe_history(world.store, "live")] == [
        *("3", "2", "1")
    ]
    tracked_once(world, moves[-1].table_version)
    reaped(world)


def test_a_clock_that_is_set_right_before_the_gate_is_told_and_then_measured_by(
    world: FlowWorld, clock_off: Callable[[Callable[[], float]], None]
) -> None:
    from prefect.runtime import task_run

    sure(world)
    clock_off(lambda: 0.0 if str(task_run.name).startswith("gate") else 1.0)
    result = retune(world)
    assert result["outcome"] == "Refused", result
    assert world.pointer() is None
    told = [reason for reason in result["reasons"] if "1.0 h in the future" in reason]
    assert len(told) == 2, "evidence and verdict"
    assert all("correct the clocks" in reason for reason in told)
    boots = len(world.engine.boots())
    clock_off(lambda: 0.0)
    again = retune(world)
    assert again["outcome"] == "Promoted", "nobody waits until the calendar gets there"
    assert len(world.engine.boots()) > boots
    pointer = world.pointer()
    assert pointer is not None
    assert abs(ahead_h(world.store.get(Verdict, pointer.verdict).validated_at)) < 0.5
    reaped(world)


def ahead_h(moment: str) -> float:
    """Hours by which a record is dated in the future."""
    found = parse_moment(moment)
    assert found is not None
    return (found - datetime.now(UTC)) / timedelta(hours=1)
