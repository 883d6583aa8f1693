"""Decision logs: exact, strict, and readable after a crash."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.plane import Plane
from tabletune.records.base import RecordError
from tabletune.records.decision_log import (
    MAX_LINE_BYTES,
    NoteLine,
    PromoteLine,
    TickLine,
    encode_tick,
    parse_trace,
)
from tabletune.records.trace_promoted import PromotedFacts
from tests.records.decision_log import END_S, header, write_log
from tests.records.live import MAX_NUM_SEQS, observed, promoted


@cache
def log() -> tuple[bytes, ...]:
    return tuple(write_log())


def test_a_log_is_read_back_as_it_was_written() -> None:
    trace = parse_trace(log())
    assert not trace.torn
    assert trace.header.run_id == "run-1"
    assert trace.header.boot_lengths == (4,) * MAX_NUM_SEQS
    kinds = [type(entry) for entry in trace.entries]
    assert (kinds.count(TickLine), kinds.count(PromoteLine), kinds.count(NoteLine)) == (END_S, 1, 1)
    for entry, line in zip(trace.entries, log()[1:], strict=True):
        if isinstance(entry, TickLine):
            again = encode_tick(entry.now_s, entry.unix_s, entry.seen(), entry.decision.decision())
            assert again == line


def test_what_was_promoted_comes_back_exactly() -> None:
    before = promoted()
    facts = PromotedFacts.of(before)
    after = PromotedFacts.model_validate_json(facts.model_dump_json()).promoted()
    assert PromotedFacts.of(after) == facts
    # What the controller reads is the same to the last bit.
    assert (Plane(before).log_time == Plane(after).log_time).all()
    assert (Plane(before).usable == Plane(after).usable).all()
    assert (before.prior.accepted_through == after.prior.accepted_through).all()
    assert after.forbidden_transitions == ((1, 4),)
    assert after.surface.draft_lengths == before.surface.draft_lengths
    assert not after.surface.covered(MAX_NUM_SEQS + 1, 0)


def test_an_unfinished_last_line_is_left_out() -> None:
    lines = list(log())
    for cut in (1, 10, len(lines[-1]) - 1):
        trace = parse_trace([*lines[:-1], lines[-1][:cut]])
        # Only the newline may lack: the line itself is whole then.
        whole = cut == len(lines[-1]) - 1
        assert trace.torn is not whole
        assert len(trace.entries) == len(lines) - 1 - (not whole)


def test_an_unfinished_header_is_no_log() -> None:
    with pytest.raises(RecordError, match="line 1"):
        parse_trace([header()[:50]])


def test_nothing_is_no_log() -> None:
    with pytest.raises(RecordError, match="it is empty"):
        parse_trace([])


def changed(number: int, change: Callable[[dict[str, Any]], object]) -> list[bytes]:
    lines = list(log())
    fields = json.loads(lines[number])
    change(fields)
    lines[number] = json.dumps(fields).encode() + b"\n"
    return lines


@pytest.mark.parametrize(
    ("number", "change", "reason"),
    [
        (0, lambda f: f.update(format_version=2), "newer than 1"),
        (0, lambda f: f.update(line="tick"), "begins with 'tick'"),
        (0, lambda f: f.update(extra=1), "extra"),
        (0, lambda f: f.update(seed=-1), "seed"),
        (0, lambda f: f["promoted"]["lengths"].pop(), "batch sizes"),
        (0, lambda f: f["promoted"]["step_times_s"]["0"].__setitem__(0, 0.0), "step_times_s"),
        (0, lambda f: f["promoted"]["prior"]["accepted_through"].reverse(), "accepted_through"),
        (3, lambda f: f.update(now_s="1"), "now_s"),
        (3, lambda f: f.update(line="tock"), "'tock' is no kind of line"),
        (3, lambda f: f["decision"].update(kind="guess"), "decision.kind"),
        (3, lambda f: f["decision"].update(predicted_gain=True), "predicted_gain"),
        (3, lambda f: f["observation"].update(steps="9"), "other types"),
        (3, lambda f: f["observation"].update(steps=9.5), "other types"),
        (3, lambda f: f["observation"].pop("cells"), "cells"),
        (3, lambda f: f["observation"]["cells"][0].append(1), "observation"),
        (3, lambda f: f["observation"]["cells"][0].__setitem__(0, "8"), "other types"),
        (3, lambda f: f["observation"]["batches"][0].__setitem__(0, True), "other types"),
        (3, lambda f: f["observation"].update(format=2), "format"),
    ],
)
def test_what_is_not_as_it_must_be_is_named(
    number: int, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    with pytest.raises(RecordError, match=reason) as caught:
        parse_trace(changed(number, change))
    assert f"line {number + 1}" in caught.value.reason


def test_a_broken_line_in_the_middle_is_not_a_torn_one() -> None:
    lines = list(log())
    lines[5] = lines[5][:20] + b"\n"
    with pytest.raises(RecordError, match="line 6"):
        parse_trace(lines)


def test_an_endless_line_is_refused() -> None:
    with pytest.raises(RecordError, match="bytes, more than"):
        parse_trace([header(), b'"' + b"x" * MAX_LINE_BYTES + b'"\n'])


def test_settings_of_another_version_are_told_when_they_are_needed() -> None:
    lines = changed(0, lambda f: f["settings"].update(novelty=1.0))
    with pytest.raises(RecordError, match="novelty"):
        parse_trace(lines).header.controller_settings()
    assert parse_trace(log()).header.controller_settings().prior_weight > 0


def test_a_tick_without_steps_is_kept_too() -> None:
    nothing = LiveObservation.nothing(0.0, 1.0, 4)
    line = encode_tick(1.0, 2.0, nothing, Decision("hold", "no step was seen"))
    (entry,) = parse_trace([header(), line]).entries
    assert isinstance(entry, TickLine)
    assert entry.seen() == nothing
    assert observed(1, 4, 2, (0.5, 0.2, 0.1, 0.1)).steps > 0
