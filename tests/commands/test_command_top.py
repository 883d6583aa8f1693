"""top: what it shows, and what it says when there is nothing to show."""

import signal
from typing import Any

import pytest
from rich.console import Console

from tabletune.commands import top
from tabletune.commands.endings import Terminated
from tabletune.commands.exit_codes import ExitCode
from tabletune.commands.top import read_again
from tabletune.commands.top_view import Seen, view
from tabletune.measure.api import EngineAddress
from tabletune.measure.status import StatusClient, engine_url
from tests.commands.called import call
from tests.commands.status_page import engine_status, serving
from tests.records.decision_log import STARTED_UNIX_S


def shown(status: dict[str, Any], width: int = 80, **seen: Any) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(view(Seen("http://gpu-1:8000", status, STARTED_UNIX_S + 30, **seen)))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_everything_is_shown_beside_each_other(width: int) -> None:
    lines = shown(engine_status(), width, steps_s=83.2)
    text = "\n".join(lines)
    assert max(len(line) for line in lines) <= width
    (titles,) = (line for line in lines if line.startswith("table in force"))
    assert "live survival" in titles
    for words in (
        "http://gpu-1:8000  vLLM 0.32.0 V2 cuda  eagle3",
        "30,000 steps (83 a second), 3 swaps",
        "mode adapt  version 0123456789ab of channel live",
        "8–16  0   2…4  ◀ 8",
        "step time, live/profile",
        "exploring cost",
        "guard  quiet",
        "swap  a better table: K=1 to 0 at batch size 8",
        "fingerprint differs in driver (2 times)",
    ):
        assert words in text, words


def test_what_needs_attention_is_said() -> None:
    status = engine_status()
    controller = status["controller"]
    controller |= {"mode": "shadow", "suspended": "a pin by hand", "from_cache": True}
    controller["notes"] = ["the profile is lost\x1b[2J"]
    controller["state"]["guard"] = {"falls": 2, "quarantine_s": 61.0, "excluded_lengths": [4]}
    controller["state"]["off"] = True
    controller["state"]["proposal_rate"] = [0.5, 0.4, 0.3, 0.2]
    controller["last_decisions"][-1]["applied"] = False
    status |= {"active": False, "reason": "an exception in the seam"}
    text = "\n".join(shown(status, trouble="no answer (ReadTimeout)", since_s=12.0))
    for words in (
        "off: an exception in the seam",
        "for 12 s: no answer (ReadTimeout)",
        "mode shadow (this engine allows adapt)",
        "from the disk cache",
        "suspended: a pin by hand",
        "note: the profile is lost",
        "2 falls, quarantine for 61 s",
        "kept out: K = 4",
        "adapting is off until the next promotion",
        "proposed 50%",
        "[only reported]",
    ):
        assert words in text, words
    assert "\x1b[2J" not in text


def test_an_engine_that_only_measures_says_so() -> None:
    status = engine_status() | {"controller": None}
    text = "\n".join(shown(status))
    assert "no source is followed" in text
    assert "table in force" in text


@pytest.mark.parametrize("odd", [None, [], "x", 7, True, {"state": []}, {"last_decisions": [1]}])
def test_odd_answers_do_not_break_the_view(odd: Any) -> None:
    for name in engine_status():
        if name != "plugin_version":
            assert shown(engine_status() | {name: odd})
    for name in engine_status()["controller"]:
        status = engine_status()
        status["controller"][name] = odd
        assert shown(status)
    for name in engine_status()["controller"]["state"]:
        status = engine_status()
        status["controller"]["state"][name] = odd
        assert shown(status)


def test_a_table_of_many_ranges_is_shown_around_the_live_batch_size() -> None:
    status = engine_status()
    status["table"] = [[b, b, b % 3] for b in range(1, 200)]
    status["controller"]["state"]["batch_size"] = 150
    text = "\n".join(shown(status))
    assert "◀ 150" in text
    assert "199 ranges" in text
    assert len(text.splitlines()) < 40


def test_once_and_json_over_http() -> None:
    status = engine_status()
    with serving(status) as server:
        ended = call("top", server.address, "--once")
        assert ended.status == ExitCode.OK, ended.errors
        assert "table in force" in ended.output
        assert call("top", f"http://{server.address}/v1", "--json").json == status
        # Without a terminal there is nothing to be live on.
        assert "table in force" in call("top", server.address).output


def test_a_token_is_asked_for_and_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "0123456789abcdef"
    with serving(engine_status(), token) as server:
        without = call("top", server.address, "--once")
        assert without.status == ExitCode.ENGINE
        assert "--token or in TABLETUNE_TOKEN" in without.errors
        wrong = call("top", server.address, "--once", "--token", "x" * 16)
        assert "the token is refused" in wrong.errors
        assert token not in wrong.errors
        assert call("top", server.address, "--once", "--token", token).status == ExitCode.OK
        monkeypatch.setenv("TABLETUNE_TOKEN", token)
        assert call("top", server.address, "--once").status == ExitCode.OK


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "there is no plugin in this engine"),
        (b"<html>", "not a status"),
        (b'{"a": 1}', "not a status"),
        (b"[]", "not a status"),
    ],
)
def test_what_is_no_status_is_explained(answer: bytes | None, words: str) -> None:
    with serving(answer) as server:
        ended = call("top", server.address, "--once", "--json")
    assert ended.status == ExitCode.ENGINE
    assert words in ended.json["error"]["message"]


def test_nobody_there_and_no_address() -> None:
    with serving(None) as server:
        address = server.address
    gone = call("top", address, "--once")
    assert gone.status == ExitCode.ENGINE
    assert "no answer (ConnectError" in gone.errors
    for never in ("a..b", "x" * 64, "\N{SNOWMAN}"):
        unknown = call("top", never, "--once", "--json")
        assert unknown.status == ExitCode.ENGINE
        assert "no answer (" in unknown.json["error"]["message"]
    bad = call("top", "ftp://x", "--once")
    assert bad.status == ExitCode.USAGE
    assert "write it as host:port" in bad.errors


def test_the_watch_goes_on_while_the_engine_is_away() -> None:
    status = engine_status()
    with serving(status) as server:
        client = StatusClient(EngineAddress(f"http://{server.address}"))
        first = Seen("u", client.read(), 100.0)
        status["steps"] += 500
        second, good_s = read_again(client, first, 10.0, 11.0, 102.0)
        assert (second.steps_s, good_s, second.trouble) == (250.0, 11.0, "")
        server.status = None
        third, good_s = read_again(client, second, good_s, 16.0, 107.0)
        assert (third.since_s, good_s) == (5.0, 11.0)
        assert "no plugin" in third.trouble
        assert third.status == second.status
        server.status = status | {"run_id": "run-2", "steps": 3}
        fourth, _ = read_again(client, third, good_s, 17.0, 108.0)
        assert (fourth.trouble, fourth.steps_s) == ("", None)  # another run: no rate across it


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("https://gpu.example/tuned/", "https://gpu.example/tuned"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("", None),
        ("http://", None),
        ("host:port", None),
        ("file:///x", None),
    ],
)
def test_addresses_as_people_type_them(text: str, url: str | None) -> None:
    assert engine_url(text) == url


@pytest.mark.parametrize(
    ("end", "goes_on"),
    [
        (KeyboardInterrupt(), True),
        (Terminated(signal.SIGINT), True),
        (Terminated(signal.SIGTERM), False),
        (Terminated(signal.SIGHUP), False),
    ],
)
def test_ctrl_c_ends_the_watch_and_nothing_else(
    end: BaseException, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(*_: object) -> None:
        raise end

    monkeypatch.setattr(top, "_watch", watch)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with serving(engine_status()) as server:
        if goes_on:
            top.top(server.address)
        else:
            with pytest.raises(Terminated):
                top.top(server.address)
    assert getattr(end, "settled", False) == (goes_on and isinstance(end, Terminated))
