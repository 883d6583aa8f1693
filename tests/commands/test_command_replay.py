"""replay on the command line."""

import json
import pathlib
from functools import cache

import pytest

from tabletune.commands.exit_codes import ExitCode
from tests.commands.called import call
from tests.records.decision_log import header, write_log


@cache
def lines() -> tuple[bytes, ...]:
    return tuple(write_log())


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"".join(lines()))
    return path


def test_a_sound_log_replays(log: pathlib.Path) -> None:
    ended = call("replay", str(log))
    assert ended.status == ExitCode.OK, ended.errors
    assert "every decision comes out the same" in ended.output
    assert "swap: promoted: second" in ended.output
    (run,) = call("replay", str(log), "--json").json
    assert run["same"]
    assert run["differing"] == 0
    assert sum(run["decisions"].values()) == run["ticks"] + run["promotions"]


def test_a_changed_decision_has_its_own_exit_status(log: pathlib.Path) -> None:
    changed = list(lines())
    fields = json.loads(changed[9])
    fields["decision"] |= {"kind": "off", "lengths": [0] * 16}
    changed[9] = json.dumps(fields).encode() + b"\n"
    log.write_bytes(b"".join(changed))
    ended = call("replay", str(log))
    assert ended.status == ExitCode.REPLAY_DIFFERS
    assert "1 decisions come out otherwise" in ended.output
    (run,) = call("replay", str(log), "--json").json
    assert run["differences"][0]["recorded"]["kind"] == "off"


def test_rotated_files_come_with_the_log(log: pathlib.Path) -> None:
    log.with_name("trace.jsonl.1").write_bytes(b"".join(lines()[:60]))
    log.write_bytes(header(1) + b"".join(lines()[60:]))
    log.with_name("trace.jsonl.note").write_text("not one of them")
    ended = call("replay", str(log))
    assert ended.status == ExitCode.OK, ended.errors
    assert "every decision comes out the same" in ended.output
    alone = call("replay", str(log.rename(log.with_name("late.jsonl"))))
    assert alone.status == ExitCode.REPLAY_DIFFERS
    assert "cannot be compared: the log's first file is not there" in alone.output


def test_a_log_of_another_version_is_read_and_still_answers(log: pathlib.Path) -> None:
    fields = json.loads(lines()[0])
    fields["settings"]["novelty"] = 1.0
    log.write_bytes(json.dumps(fields).encode() + b"\n" + b"".join(lines()[1:]))
    ended = call("replay", str(log))
    assert ended.status == ExitCode.REPLAY_DIFFERS
    assert "cannot be compared: plugin 0.1.0 wrote it" in ended.output
    assert "novelty" in ended.output
    answer = call("replay", str(log), "--at", "03:11:30")
    assert answer.status == ExitCode.OK
    assert "K = 0" in answer.output
    assert "cannot be worked out" in answer.output


def test_why_at_a_time_and_batch_size(log: pathlib.Path) -> None:
    ended = call("replay", str(log), "--at", "03:11:30", "--batch-size", "8")
    assert ended.status == ExitCode.OK, ended.errors
    assert "At 2026-03-12 03:11:30 UTC the controller's table had K = 0" in ended.output
    assert "in force" in ended.output
    answer = call("replay", str(log), "--at", "03:11:30", "--batch-size", "8", "--json").json
    assert answer["draft_length"] == 0
    assert answer["since"]["kind"] == "swap"
    assert {row["draft_length"] for row in answer["outlook"]} == {0, 1, 2, 4}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--at", "later"), ExitCode.USAGE, "--at: expected a time"),
        (("--at", "1970-01-01"), ExitCode.RECORD, "begins at 2026-03-12"),
        (("--batch-size", "99"), ExitCode.RECORD, "1 … 16, not 99"),
    ],
)
def test_what_cannot_be_answered_is_explained(
    log: pathlib.Path, arguments: tuple[str, ...], status: ExitCode, words: str
) -> None:
    ended = call("replay", str(log), *arguments)
    assert (ended.status, words in ended.errors) == (status, True), ended.errors


def test_no_log_and_no_such_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "other.json"
    missing = call("replay", str(path))
    assert missing.status == ExitCode.USAGE
    assert "No such file" in missing.errors
    path.write_text('{"kind": "table"}\n')
    wrong = call("replay", str(path))
    assert wrong.status == ExitCode.RECORD
    assert f"{path}" in wrong.errors
    assert "begins with 'None'" in wrong.errors
