"""The slot on the server is for people to see; the host's lock guards."""

import contextlib
from collections.abc import Iterator

import pytest

pytest.importorskip("prefect")

from tabletune_tasks.engine_slot import _given_back


class Unreachable(Exception):
    """What a client raises whose server is gone."""


@contextlib.contextmanager
def slots(at_end: type[BaseException] | None, seen: list[str]) -> Iterator[None]:
    seen.append("taken")
    try:
        yield
    finally:
        seen.append("given back")
        if at_end is not None:
            raise at_end("no answer")


def test_a_server_that_cannot_take_slots_back_fails_no_measurement(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []
    with _given_back(slots(Unreachable, seen)):
        seen.append("measured")
    assert seen == ["taken", "measured", "given back"]
    assert "free again within 60 s: no answer" in caplog.text


def test_what_ended_the_measurement_is_what_is_told() -> None:
    for at_end in (None, Unreachable):
        seen: list[str] = []
        with pytest.raises(ValueError, match="of the engine"), _given_back(slots(at_end, seen)):
            raise ValueError("of the engine")
        assert seen == ["taken", "given back"]


def test_an_interrupt_is_never_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt), _given_back(slots(KeyboardInterrupt, [])):
        pass
