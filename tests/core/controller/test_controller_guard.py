"""The watchdog: stalls and collapses after a swap."""

import dataclasses

import numpy as np
import pytest

from tabletune.core.controller.controller import Controller
from tabletune.core.controller.decision import Decision
from tabletune.core.controller.guard import Guard
from tabletune.core.controller.observation import BatchTotals, LiveObservation, Stall
from tabletune.core.controller.settings import ControllerSettings
from tests.core.controller.controller_scenes import (
    GOOD,
    SIZE,
    FakeEngine,
    controller,
    drive,
    promoted,
)

BOOT = (1,) * SIZE


def swapped() -> tuple[Controller, FakeEngine, float]:
    """Just after a swap away from a promoted K=0, and when that is."""
    control, engine = controller(promoted(0, GOOD), boot=BOOT), FakeEngine(GOOD)
    for i in range(30):
        _, _, decision = drive(control, engine, 1, float(i))[0]
        if decision.kind == "swap":
            return control, engine, i + 1.0
    pytest.fail("a good drafter was not taken up")


def kinds(control: Controller, engine: FakeEngine, ticks: int, from_s: float) -> list[Decision]:
    return [d for _, _, d in drive(control, engine, ticks, from_s) if d.kind not in ("hold",)]


def until_fall(control: Controller, engine: FakeEngine, from_s: float) -> tuple[Decision, float]:
    """The fall within the next ticks, and when it was."""
    for i in range(8):
        at_s, _, decision = drive(control, engine, 1, from_s + i)[0]
        if decision.kind in ("revert", "off"):
            return decision, at_s
    pytest.fail("the table stayed in force")


def test_stalls_after_a_swap_bring_the_promoted_table_back() -> None:
    control, engine, now_s = swapped()
    engine.stalls = 4
    decision, at_s = until_fall(control, engine, now_s)
    assert decision.kind == "revert"
    assert decision.lengths == control.promoted.lengths == control.table
    assert "stalled" in decision.reason
    engine.stalls = 0
    assert kinds(control, engine, 50, at_s) == []  # in quarantine
    assert control.state()["guard"]["excluded_lengths"] != []  # pyright: ignore


def test_a_collapse_after_a_swap_brings_the_promoted_table_back() -> None:
    control, engine, now_s = swapped()
    engine.tokens = 0.3
    decision, _ = until_fall(control, engine, now_s)
    assert decision.kind == "revert"
    assert "throughput fell" in decision.reason


def test_a_swap_that_keeps_its_promise_stays() -> None:
    control, engine, now_s = swapped()
    assert not [d for d in kinds(control, engine, 100, now_s) if d.kind in ("revert", "off")]
    assert control.table != control.promoted.lengths


def test_a_few_stalls_without_a_swap_are_no_reason() -> None:
    control, engine = controller(promoted(2, GOOD), boot=BOOT), FakeEngine(GOOD)
    drive(control, engine, 60)
    table = control.table
    engine.stalls = 1
    assert not [d for d in kinds(control, engine, 5, 60.0) if d.kind in ("revert", "off")]
    assert control.table == table


def test_a_host_that_always_stalls_somewhat_is_not_the_fault_of_a_second_swap() -> None:
    """What is usual is remembered over several swaps, not only since the last one."""
    guard = Guard(ControllerSettings())
    level = np.zeros(SIZE)

    def tick(now_s: float, stalled_s: float) -> str | None:
        seen = dataclasses.replace(
            LiveObservation.nothing(now_s - 1, now_s, 3),
            steps=100,
            batches=(BatchTotals(4, 100, 1.0, 1000, 90, 1.0, 1000),),
            stalls=(Stall(4, 1, stalled_s / 4),) * 4 if stalled_s else (),
        )
        return guard.update(seen, lambda b, k: 1e-9, 1.0, now_s)

    for i in range(30):
        assert tick(float(i), 0.15) is None
    guard.swapped(30.0, level)
    assert tick(31.0, 0.0) is None  # a quiet second between two swaps
    guard.swapped(31.0, level)
    assert tick(32.0, 0.4) is None
    assert "stalled" in str(tick(33.0, 1.0))


def test_when_the_promoted_table_fails_too_the_boot_table_and_in_the_end_off() -> None:
    control, engine, now_s = swapped()
    engine.stalls = 4
    fell: list[tuple[str, tuple[int, ...] | None]] = []
    waits: list[float] = []
    for i in range(60):
        for decision in kinds(control, engine, 20, now_s + 20.0 * i):
            if decision.kind in ("revert", "off"):
                fell.append((decision.kind, decision.lengths))
                waits.append(control._guard.quarantine_until_s - control._clock_s)  # pyright: ignore[reportPrivateUsage]
    assert fell[0] == ("revert", (0,) * SIZE)
    assert fell[1] == ("revert", BOOT)
    assert fell[-1] == ("off", BOOT)
    assert control.off
    assert control.table == BOOT
    assert kinds(control, engine, 100, 2000.0) == []
    again = control.promote(promoted(2, GOOD, version="second"), 2200.0)
    assert again.lengths == (2,) * SIZE
    assert not control.off


def test_quarantines_grow_and_have_an_end() -> None:
    guard = swapped()[0]._guard  # pyright: ignore[reportPrivateUsage]
    waits = [guard.fall(0.0, frozenset()) for _ in range(10)]
    assert waits[:3] == [60.0, 120.0, 240.0]
    assert max(waits) == 3600.0


def test_after_the_quarantine_it_adapts_again_without_the_new_lengths_at_first() -> None:
    control, engine, now_s = swapped()
    new = set(control.table) - {0}
    engine.stalls = 4
    _, now_s = until_fall(control, engine, now_s)
    engine.stalls = 0
    later = kinds(control, engine, 110, now_s)
    assert not any(set(d.lengths or ()) & new for d in later)
    last = kinds(control, engine, 60, now_s + 110)
    assert any(d.kind == "swap" for d in last)


def test_a_length_that_stalls_in_probes_is_left_out() -> None:
    control = controller(promoted(2, GOOD))
    engine = FakeEngine(GOOD)
    drive(control, engine, 30)
    control._guard.exclude(frozenset((3,)), control._clock_s, 60.0)  # pyright: ignore[reportPrivateUsage]
    for _, _, decision in drive(control, engine, 40, 30.0):
        assert all(k != 3 for k, _ in decision.probe)
        assert 3 not in (decision.lengths or ())
