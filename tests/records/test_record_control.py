"""The kill switch's record: what it may say, and that its bytes are stable."""

import itertools

import pytest
from pydantic import ValidationError

from tabletune.records.base import RecordError
from tabletune.records.control import MAX_CONTROL_BYTES, MODES, Control, Mode, lowest

SWITCH = Control(
    channel="live", mode="off", set_at="2026-01-01T00:00:00+00:00", set_by="ops", reason="smoke"
)


def test_its_bytes_are_stable() -> None:
    assert SWITCH.to_json() == (
        b'{"channel":"live","format_version":1,"kind":"control","mode":"off","reason":"smoke",'
        b'"set_at":"2026-01-01T00:00:00+00:00","set_by":"ops"}'
    )
    assert Control.from_json(SWITCH.to_json()) == SWITCH
    assert len(SWITCH.to_json()) < MAX_CONTROL_BYTES


@pytest.mark.parametrize("changes", [{"mode": "on"}, {"mode": 0}, {"channel": "Live"}])
def test_what_no_engine_could_obey_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Control.model_validate(SWITCH.model_dump() | changes)
    with pytest.raises(RecordError):
        Control.from_json(b'{"kind":"control","format_version":1,"mode":"off"}')


def test_the_lower_mode_counts() -> None:
    order: tuple[Mode, ...] = ("off", "shadow", "follow", "adapt")
    assert order == MODES
    for first, second in itertools.product(MODES, MODES):
        expected = MODES[min(MODES.index(first), MODES.index(second))]
        assert lowest(first, second) == expected
