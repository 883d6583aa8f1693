"""Replay: the same decisions again, differences found, and the answer to a why."""

import json
from functools import cache

import pytest

from tabletune.pipeline.replay import replay, runs_of
from tabletune.pipeline.request import RequestError
from tabletune.pipeline.why import read_time, why
from tabletune.records.base import RecordError
from tabletune.records.decision_log import NoteLine, Trace, parse_trace
from tests.records.decision_log import (
    BATCH_SIZE,
    END_S,
    PROMOTED_S,
    STARTED_UNIX_S,
    SWITCH_S,
    header,
    write_log,
)
from tests.records.live import step_time_s


@cache
def log() -> tuple[bytes, ...]:
    return tuple(write_log())


@cache
def trace() -> Trace:
    return parse_trace(log())


def test_every_decision_comes_out_as_recorded() -> None:
    result = replay([trace()])
    assert result.same
    assert (result.ticks, result.promotions, len(result.notes)) == (END_S, 1, 1)
    assert sum(result.kinds.values()) == END_S + 1
    # The log is worth replaying: it adapted to the bad drafts, and followed the promotion.
    swaps = [at - STARTED_UNIX_S for at, decision in result.done if decision.kind == "swap"]
    assert any(SWITCH_S < at < PROMOTED_S for at in swaps)
    assert PROMOTED_S in swaps


def test_a_change_of_mode_is_followed() -> None:
    following = range(SWITCH_S - 5, PROMOTED_S)
    result = replay([parse_trace(write_log(following))])
    assert result.same
    assert not any(SWITCH_S <= at - STARTED_UNIX_S < PROMOTED_S for at, _ in result.done)
    answer = why([parse_trace(write_log(following))], STARTED_UNIX_S + SWITCH_S + 9, None)
    assert (answer.mode, answer.draft_length) == ("follow", 4)


@pytest.mark.parametrize("field", ["kind", "lengths", "evidence", "observation"])
def test_a_changed_log_does_not_replay(field: str) -> None:
    lines = list(log())
    number = next(
        i for i, line in enumerate(lines) if b'"kind":"swap"' in line and b'"line":"tick"' in line
    )
    fields = json.loads(lines[number])
    decision = fields["decision"]
    if field == "kind":
        decision["kind"] = "revert"
    elif field == "lengths":
        decision["lengths"][0] += 1
    elif field == "evidence":
        name = next(iter(decision["evidence"]))
        decision["evidence"][name] += 0.01
    else:
        fields["observation"]["accepted_through"] = [0, 0, 0, 0]
    lines[number] = json.dumps(fields).encode() + b"\n"
    result = replay([parse_trace(lines)])
    assert not result.same
    assert result.differing >= 1
    first = result.differences[0]
    assert trace().entries[first.entry].unix_s == first.unix_s
    if field != "observation":
        assert result.differing == 1
        assert first.entry == number - 1


def split() -> list[Trace]:
    """The same run in two files."""
    lines = list(log())
    return [parse_trace(lines[:50]), parse_trace([later_header(1, 49), *lines[50:]])]


def later_header(number: int, after_s: float, run_id: str = "run-1") -> bytes:
    fields = json.loads(header(number, run_id))
    fields["opened_unix_s"] += after_s
    return json.dumps(fields).encode() + b"\n"


def test_the_files_of_a_run_replay_in_their_order() -> None:
    first, second = split()
    (files,) = runs_of([second, first])
    assert files == [first, second]
    assert replay(files).same


def test_runs_are_told_apart() -> None:
    other = parse_trace([later_header(0, 500, "run-0")])
    again = parse_trace([later_header(0, 900)])  # the same engine, its controller made anew
    runs = [[f.header.run_id for f in files] for files in runs_of([again, trace(), other])]
    assert runs == [["run-1"], ["run-0"], ["run-1"]]


def test_files_that_lack_or_repeat_are_refused() -> None:
    first, second = split()
    fourth = parse_trace([later_header(3, 99)])
    for files in ([first, second, second], [first, second, fourth]):
        with pytest.raises(RecordError, match="have the numbers"):
            runs_of(files)


def test_without_its_beginning_a_run_is_read_but_not_compared() -> None:
    _, second = split()
    result = replay([second])
    assert "first file" in result.obstacle
    assert not result.same
    assert result.ticks > 0
    answer = why([second], None, BATCH_SIZE)
    assert answer.outlook == ()
    assert answer.draft_length == why([trace()], None, BATCH_SIZE).draft_length


def test_why_gives_the_decision_and_its_numbers() -> None:
    at = STARTED_UNIX_S + PROMOTED_S - 2
    answer = why([trace()], at, BATCH_SIZE)
    assert answer.draft_length < 4
    assert answer.since is not None
    when, decision = answer.since
    assert SWITCH_S < when - STARTED_UNIX_S <= PROMOTED_S - 2
    assert decision.kind == "swap"
    rows = {row.draft_length: row for row in answer.outlook}
    assert set(rows) == {0, 1, 2, 4}
    assert rows[0].expected_tokens == 1.0
    assert rows[2].profiled_step_time_s == pytest.approx(step_time_s(BATCH_SIZE, 2), rel=1e-3)
    best = max(rows.values(), key=lambda row: row.predicted_goodput_tok_s or 0.0)
    used = rows[answer.draft_length]
    assert best.predicted_goodput_tok_s is not None
    assert used.predicted_goodput_tok_s is not None
    assert used.predicted_goodput_tok_s >= 0.98 * best.predicted_goodput_tok_s
    assert answer.survival[0] < 0.5
    json.dumps(answer.as_json(), allow_nan=False)


def test_why_before_anything_was_decided_and_at_other_batch_sizes() -> None:
    early = why([trace()], STARTED_UNIX_S + 5, None)
    assert (early.since, early.batch_size, early.draft_length) == (None, BATCH_SIZE, 4)
    nearby = why([trace()], STARTED_UNIX_S + 25, 1).nearby
    assert [entry.event for _, entry in nearby if isinstance(entry, NoteLine)] == ["refused"]
    with pytest.raises(RecordError, match="begins at 2026-03-12 03:10:01 UTC"):
        why([trace()], STARTED_UNIX_S - 1, None)
    with pytest.raises(RecordError, match="not 17"):
        why([trace()], None, 17)


@pytest.mark.parametrize(
    ("text", "after_s"),
    [
        ("03:12", 120),
        ("03:11:30", 90),
        ("2026-03-12T03:11:00", 60),
        ("2026-03-12T04:11:00+01:00", 60),
        (f"{STARTED_UNIX_S + 7}", 7),
        ("03:13", 180 - 86400),  # after the log's end: the day before
    ],
)
def test_times_as_people_write_them(text: str, after_s: float) -> None:
    assert read_time(text, [trace()]) == STARTED_UNIX_S + after_s


@pytest.mark.parametrize("text", ["", "three", "25:00", "nan", "1e300", "03:12:99"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="--at: expected a time"):
        read_time(text, [trace()])
