"""The plugin in a real engine: vLLM on the CPU with a real model and the n-gram drafter."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tabletune.measure.launch import PluginMode
from tabletune.measure.runner import RunningEngine, start_engine
from tests.engines import (
    BOOT_DEADLINE_S,
    BOOT_TABLE,
    LONGEST,
    MAX_NUM_SEQS,
    SharedEngine,
    engine_launch,
)

pytestmark = pytest.mark.engine

PROMPTS = [
    f"Step {number}: one two three four five, one two three four five, one two three"
    for number in range(MAX_NUM_SEQS)
]


@dataclass
class Server:
    """A running engine and what to ask it."""

    client: httpx.Client
    model: str

    def get(self, path: str) -> Any:
        reply = self.client.get(path)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def post(self, path: str, body: Any) -> Any:
        reply = self.client.post(path, json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def complete(self, prompt: str, tokens: int) -> str:
        return self._completions([prompt], tokens)[0]

    def burst(self, requests: int, tokens: int) -> list[str]:
        """In one call: on a busy machine calls of their own may come one after the other."""
        return self._completions(PROMPTS[:requests], tokens)

    def _completions(self, prompts: list[str], tokens: int) -> list[str]:
        body = {"model": self.model, "prompt": prompts, "max_tokens": tokens}
        reply = self.post("/v1/completions", {**body, "temperature": 0, "ignore_eos": True})
        return [choice["text"] for choice in sorted(reply["choices"], key=lambda c: c["index"])]

    def position(self) -> int:
        return self.get("/tabletune/status")["steps"]

    def columns(self, since: int) -> dict[str, Any]:
        # The last step's record may follow the last answer by a moment.
        for _ in range(200):
            reply = self.get(f"/tabletune/steps?since={since}&limit=16384")
            running = reply["columns"]["running_requests"]
            if running and running[-1] == 0:
                assert reply["lost"] == 0
                return reply["columns"]
        raise AssertionError(f"the engine did not come to rest: {running}")


def server_of(engine: RunningEngine, model: str) -> Server:
    return Server(httpx.Client(base_url=engine.base_url, timeout=120.0, trust_env=False), model)


@pytest.fixture(scope="session")
def texts_without(
    engine_python: Path, engine_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Greedy answers of an engine whose environment names the plugin but no variable."""
    path = tmp_path_factory.mktemp("engine") / "stock.log"
    launch = engine_launch(engine_python, engine_model, path, PluginMode.SERVE)
    with start_engine(launch, BOOT_DEADLINE_S) as engine:
        server = server_of(engine, str(engine_model))
        with server.client:
            return {
                "status": server.client.get("/tabletune/status").status_code,
                "texts": [server.complete(prompt, 24) for prompt in PROMPTS[:4]],
                "log": path.read_text(errors="replace"),
            }


@pytest.fixture(scope="module")
def server(measuring_engine: SharedEngine) -> Iterator[Server]:
    server = server_of(measuring_engine.engine, measuring_engine.model)
    with server.client:
        yield server


@pytest.fixture(autouse=True)
def boot_table(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").post("/tabletune/table", {"ranges": None})


def test_without_variables_there_are_no_routes_and_no_hooks(texts_without: dict[str, Any]) -> None:
    assert texts_without["status"] == 404
    assert "TableTune" not in texts_without["log"]


def test_status_tells_the_engine(server: Server) -> None:
    status = server.get("/tabletune/status")
    assert status["active"] is True
    assert status["reason"] is None
    assert (status["max_num_seqs"], status["max_draft_length"]) == (MAX_NUM_SEQS, LONGEST)
    assert (status["method"], status["device"]) == ("ngram", "cpu")
    assert status["table"] == status["boot_table"] == BOOT_TABLE
    assert status["captured_graphs"]["known"] is False


@pytest.mark.parametrize("length", [0, 1, 3, 4])
def test_a_pin_is_followed_exactly(server: Server, length: int) -> None:
    server.post("/tabletune/pin", {"draft_length": length})
    since = server.position()
    server.burst(3, 16)
    columns = server.columns(since)
    assert set(columns["draft_length"]) == {length}
    assert set(columns["draft_length_verified"]) <= {length, -1}
    assert max(columns["max_draft_tokens"]) <= length
    decodes = [
        at
        for at, prefills in enumerate(columns["prefill_requests"])
        if prefills == 0 and columns["drafted_requests"][at] == columns["batch_size"][at]
    ]
    for at in decodes:
        expected = columns["batch_size"][at] + columns["draft_tokens"][at]
        assert columns["scheduled_tokens"][at] == expected
    if length:
        assert sum(columns["drafted_requests"]) > 0
    assert sum(columns["output_tokens"]) == 3 * 16


def test_a_schedule_is_executed_exactly_and_ends_at_the_table(server: Server) -> None:
    server.post("/tabletune/table", {"ranges": [[1, 2, 2], [3, MAX_NUM_SEQS, 1]]})
    entries, repeat = [[0, 3], [2, 2], [4, 1]], 2
    server.post("/tabletune/pin", {"schedule": entries, "repeat": repeat})
    since = server.position()
    server.burst(1, 64)
    lengths = server.columns(since)["draft_length"]
    script = [length for length, steps in entries for _ in range(steps)] * repeat
    assert len(lengths) > len(script)
    assert lengths == script + [2] * (len(lengths) - len(script))
    assert server.get("/tabletune/status")["pin"] is None


def test_the_length_in_force_follows_one_step_later(server: Server) -> None:
    server.post("/tabletune/pin", {"schedule": [[4, 2], [1, 2], [0, 2]], "repeat": 5})
    since = server.position()
    server.burst(1, 48)
    columns = server.columns(since)
    assert columns["draft_length_verified"] == [-1, *columns["draft_length"][:-1]]
    assert columns["after_idle"] == [1, *[0] * (len(columns["after_idle"]) - 1)]


def test_a_swapped_table_is_looked_up_by_batch_size(server: Server) -> None:
    server.post("/tabletune/table", {"ranges": [[1, 2, 3], [3, 4, 1], [5, MAX_NUM_SEQS, 0]]})
    since = server.position()
    for requests in (2, 4, 7):
        server.burst(requests, 32)
    columns = server.columns(since)
    pairs = set(zip(columns["batch_size"], columns["draft_length"], strict=True))
    assert {0 if b <= 2 else 1 if b <= 4 else 2 for b, _ in pairs} == {0, 1, 2}  # every range
    assert all(k == (3 if b <= 2 else 1 if b <= 4 else 0) for b, k in pairs)


def test_counts_equal_vllms_own_metrics(server: Server) -> None:
    def metrics() -> dict[str, float]:
        found: dict[str, float] = {}
        for line in server.client.get("/metrics").text.splitlines():
            if line.startswith("vllm:spec_decode_num_") and "_created" not in line:
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    server.post("/tabletune/pin", {"draft_length": LONGEST})
    server.burst(4, 24)
    totals = server.get("/tabletune/status")["totals"]
    found = metrics()
    (drafts,) = (v for n, v in found.items() if "num_drafts_total" in n)
    (tokens,) = (v for n, v in found.items() if "num_draft_tokens_total" in n)
    assert drafts == totals["verified_requests"]
    assert tokens == sum(totals["drafted_through"])
    for position, accepted in enumerate(totals["accepted_through"]):
        (value,) = (v for n, v in found.items() if f'position="{position}"' in n)
        assert value == accepted


def test_greedy_tokens_are_those_of_the_stock_engine(
    server: Server, texts_without: dict[str, Any]
) -> None:
    server.post("/tabletune/pin", {"schedule": [[4, 2], [0, 1], [2, 3], [1, 1]], "repeat": 100})
    assert [server.complete(prompt, 24) for prompt in PROMPTS[:4]] == texts_without["texts"]


def test_bad_requests_get_a_json_error_and_change_nothing(server: Server) -> None:
    before = server.get("/tabletune/status")["table"]
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("/tabletune/pin", {"json": {"draft_length": 5}}, 400),
        ("/tabletune/pin", {"content": b"{", "headers": {"content-type": "application/json"}}, 400),
        ("/tabletune/pin", {"content": b'{"draft_length": 1}'}, 400),
        ("/tabletune/pin", {"json": {"draft_length": 1}, "headers": {"origin": "http://x"}}, 403),
        ("/tabletune/table", {"json": {"ranges": [[1, 4, 3]]}}, 400),
        ("/tabletune/table", {"json": {"ranges": "x" * 300_000}}, 413),
    ]
    for path, arguments, expected in cases:
        reply = server.client.post(path, **arguments)
        assert reply.status_code == expected, reply.text
        assert set(reply.json()["error"]) == {"expected", "found", "do"}
    assert server.client.get("/tabletune/steps?limit=0").status_code == 400
    status = server.get("/tabletune/status")
    assert (status["table"], status["pin"], status["active"]) == (before, None, True)


def test_the_log_holds_no_complaint(measuring_engine: SharedEngine) -> None:
    text = measuring_engine.engine.log_path.read_text(errors="replace")
    assert "measures this engine" in text
    assert "TableTune is off" not in text
    assert "TableTune stays off" not in text
