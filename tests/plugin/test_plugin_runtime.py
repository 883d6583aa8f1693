"""Pins, pin schedules and table swaps, through a lookup that a scheduler would read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune_vllm.errors import RequestError
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.lookup import LiveLookup
from tabletune_vllm.runtime import Runtime

BOOT = [0, 3, 3, 1, 1]


class Lookup:
    """Where a scheduler keeps its list; reads it as vLLM does, once per non-empty step."""

    def __init__(self) -> None:
        self.value = list(BOOT)
        self.boot = self.value
        self.unhooked = 0

    def put(self, value: list[int]) -> None:
        self.value = value

    def unhook(self) -> None:
        self.unhooked += 1

    def table(self) -> list[int]:
        return [0, *(self.value[batch_size] for batch_size in range(1, len(BOOT)))]

    def read(self, batch_size: int, steps: int) -> list[int]:
        return [self.value[batch_size] for _ in range(steps)]


def _runtime(runner: str = "V1", device: str = "cpu") -> tuple[Lookup, Runtime]:
    facts = EngineFacts("0.32.0", runner, device, "ngram", False, 4, 3, "id", 0.0)
    lookup = Lookup()
    return lookup, Runtime(facts, lookup.boot, 256, lookup.put, lookup.unhook)


def test_pin_and_lift() -> None:
    lookup, runtime = _runtime()
    assert runtime.pin({"draft_length": 2})["pin"] == {"draft_length": 2}
    assert lookup.read(1, 1) + lookup.read(4, 1) == [2, 2]
    assert runtime.pin({"draft_length": None})["pin"] is None
    assert lookup.table() == BOOT


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=6),
    st.integers(1, 4),
)
def test_a_schedule_is_executed_exactly(entries: list[tuple[int, int]], repeat: int) -> None:
    lookup, runtime = _runtime()
    runtime.swap_table({"ranges": [[1, 4, 2]]})
    runtime.pin({"schedule": [list(entry) for entry in entries], "repeat": repeat})
    expected = [length for length, steps in entries for _ in range(steps)] * repeat
    assert lookup.read(3, len(expected)) == expected
    assert runtime.status()["pin"] is None
    assert lookup.read(3, 2) == [2, 2]


def test_schedule_progress_and_interruption() -> None:
    lookup, runtime = _runtime()
    runtime.pin({"schedule": [[0, 2], [3, 2]], "repeat": 2})
    assert lookup.read(1, 5) == [0, 0, 3, 3, 0]
    pin = runtime.status()["pin"]
    assert isinstance(pin, dict)
    assert (pin["round"], pin["entry"], pin["steps_left"]) == (1, 0, 1)
    runtime.pin({"draft_length": None})
    assert lookup.table() == BOOT


def test_a_failing_schedule_answers_from_the_table_and_turns_off() -> None:
    lookup, runtime = _runtime()
    runtime.pin({"schedule": [[0, 5]]})
    live = lookup.value
    assert isinstance(live, LiveLookup)
    assert live.plan.script is not None
    live.plan.script.entries = ()
    assert live[1] == BOOT[1]
    assert not runtime.active
    assert lookup.value is lookup.boot
    assert lookup.unhooked == 1


def test_swap_lifts_the_pin_and_null_brings_the_boot_table_back() -> None:
    lookup, runtime = _runtime()
    runtime.pin({"draft_length": 0})
    status = runtime.swap_table({"ranges": [[1, 1, 0], [2, 4, 3]]})
    assert status["table"] == [[1, 1, 0], [2, 4, 3]]
    assert status["boot_table"] == [[1, 2, 3], [3, 4, 1]]
    assert status["pin"] is None
    assert lookup.read(1, 1) + lookup.read(4, 1) == [0, 3]
    runtime.swap_table({"ranges": None})
    assert lookup.table() == BOOT


def test_lengths_without_a_graph_are_refused_unless_forced() -> None:
    lookup, runtime = _runtime("V2", "cuda")
    requests: list[tuple[Any, dict[str, Any]]] = [
        (runtime.pin, {"draft_length": 2}),
        (runtime.pin, {"schedule": [[2, 1]]}),
        (runtime.swap_table, {"ranges": [[1, 4, 2]]}),
    ]
    for command, body in requests:
        with pytest.raises(RequestError, match="boot table"):
            command(body)
        assert lookup.table() == BOOT
        command({**body, "allow_uncaptured": True})
        assert lookup.read(2, 1) == [2]
        runtime.swap_table({"ranges": None})
    runtime.pin({"draft_length": 3})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"draft_length": 4},
        {"draft_length": True},
        {"draft_length": 1.0},
        {"draft_length": 1, "repeat": 2},
        {"draft_length": 1, "allow_uncaptured": 1},
        {"schedule": []},
        {"schedule": None},
        {"schedule": [[1]]},
        {"schedule": [[1, 0]]},
        {"schedule": [[1, True]]},
        {"schedule": [[9, 1]]},
        {"schedule": [[1, 1]] * 1025},
        {"schedule": [[1, 1]], "repeat": 0},
        {"schedule": [[1, 1]], "other": 0},
    ],
)
def test_bad_pins_change_nothing(body: dict[str, Any]) -> None:
    lookup, runtime = _runtime()
    with pytest.raises(RequestError):
        runtime.pin(body)
    assert lookup.table() == BOOT


def test_turning_off_survives_its_own_failures() -> None:
    _, runtime = _runtime()

    def fail(*_: Any) -> None:
        raise OSError("no")

    runtime._set_lookup = runtime._unhook = fail
    runtime.turn_off("first")
    runtime.turn_off("second")
    assert runtime.reason == "first"
