"""A real engine that follows a store: promotion, switch, roll-back, learning, telling back."""

import concurrent.futures
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from promoted_store import PromotedStore

from tabletune.measure.launch import PluginMode
from tabletune.measure.runner import start_engine
from tabletune.records.decision_log import parse_trace
from tabletune.records.snapshot import LiveSnapshot
from tests.engines import (
    BOOT_DEADLINE_S,
    BOOT_TABLE,
    LONGEST,
    MAX_NUM_SEQS,
    engine_launch,
    fingerprint_at,
)

pytestmark = pytest.mark.engine

POLL_S = 0.5
ONE, TWO = [0, *[1] * MAX_NUM_SEQS], [0, *[2] * MAX_NUM_SEQS]
PROMPTS = [
    f"Step {number}: one two three four five, one two three four five, one two three"
    for number in range(MAX_NUM_SEQS)
]


@dataclass
class Following:
    """The engine and its store."""

    client: httpx.Client
    model: str
    store: PromotedStore
    trace: Path
    log: Path

    def status(self) -> dict[str, Any]:
        reply = self.client.get("/tabletune/status")
        assert reply.status_code == 200, reply.text
        return reply.json()

    def complete(self, prompt: str, tokens: int = 24) -> str:
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        reply = self.client.post("/v1/completions", json={**body, "ignore_eos": True})
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["text"]

    def texts(self) -> list[str]:
        return [self.complete(prompt) for prompt in PROMPTS[:3]]

    def serve_until(self, seen: threading.Event, prompt: str) -> list[str]:
        """Answers, one after the other, until something has been seen."""
        answers = [self.complete(prompt)]
        while not seen.is_set():
            answers.append(self.complete(prompt))
        return answers

    def wait(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first status that shows it."""
        begun_s = time.monotonic()
        while True:
            status = self.status()
            if what(status):
                return status
            assert time.monotonic() - begun_s < 30, json.dumps(status, indent=1)[-6000:]
            time.sleep(0.05)

    def metrics(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        page = self.client.get("/metrics")
        assert page.status_code == 200
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(page.text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found


@pytest.fixture(scope="module")
def engine(
    engine_python: Path, engine_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Following]:
    folder = tmp_path_factory.mktemp("follow")
    fingerprint = fingerprint_at(engine_python, engine_model)
    store = PromotedStore(folder / "store", fingerprint, MAX_NUM_SEQS, LONGEST)
    store.switch("follow")
    launch = engine_launch(engine_python, engine_model, folder / "engine.log", PluginMode.SERVE)
    launch.environment.update(
        {
            "TABLETUNE_SOURCE": store.url,
            "TABLETUNE_MODE": "adapt",
            "TABLETUNE_POLL_S": str(POLL_S),
            "TABLETUNE_TICK_S": "0.2",
            "TABLETUNE_SNAPSHOT_S": "2",
            "TABLETUNE_CACHE": str(folder / "cache"),
            "TABLETUNE_TRACE": str(folder / "trace.jsonl"),
            "TABLETUNE_SEED": "1",
        }
    )
    with (
        start_engine(launch, BOOT_DEADLINE_S) as running,
        httpx.Client(base_url=running.base_url, timeout=120.0) as client,
    ):
        name = client.get("/v1/models").json()["data"][0]["id"]
        yield Following(client, name, store, folder / "trace.jsonl", folder / "engine.log")


def test_an_engine_follows_its_source_while_it_serves(engine: Following) -> None:
    status = engine.status()
    assert status["active"], status["reason"]
    status = engine.wait(lambda s: s["controller"]["mode"] == "follow")
    assert status["table"] == status["boot_table"] == BOOT_TABLE
    assert "no version" in str(status["controller"]["last_refusals"])
    # Following alone opens nothing that changes the engine.
    assert engine.client.post("/tabletune/pin", json={"draft_length": 1}).status_code == 404
    before = engine.texts()

    seen = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        serving = [pool.submit(engine.serve_until, seen, prompt) for prompt in PROMPTS[:3]]
        first = engine.store.promote(ONE)
        try:
            status = engine.wait(lambda s: s["controller"]["version"] == first)
        finally:
            seen.set()
        for number, answers in enumerate(serving):  # before, at and after the swap
            assert set(answers.result()) == {before[number]}
    assert status["table"] == [[1, MAX_NUM_SEQS, 1]]
    assert engine.texts() == before

    metrics = engine.metrics()
    ((info, _),) = metrics["tabletune_info"]
    assert info["version"] == first[:12]
    assert info["run_id"] == status["run_id"]
    assert info["model_name"] == metrics["vllm:num_requests_running"][0][0]["model_name"]
    assert {value for _, value in metrics["tabletune_draft_length_in_force"]} == {1.0}
    assert metrics["tabletune_swaps_total"][0][1] >= 1

    engine.store.switch("off")
    status = engine.wait(lambda s: s["controller"]["mode"] == "off")
    assert status["table"] == BOOT_TABLE
    assert engine.texts() == before
    engine.store.switch("follow")
    engine.wait(lambda s: s["table"] == [[1, MAX_NUM_SEQS, 1]])

    second = engine.store.promote(TWO)
    engine.wait(lambda s: s["controller"]["version"] == second)
    assert engine.store.rollback() == first
    status = engine.wait(lambda s: s["controller"]["version"] == first)
    assert status["table"] == [[1, MAX_NUM_SEQS, 1]]
    assert engine.texts() == before


def test_it_learns_tells_and_writes_down(engine: Following) -> None:
    engine.store.switch("adapt")
    engine.wait(lambda s: s["controller"]["mode"] == "adapt")
    before = engine.texts()
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda p: engine.complete(p, 32), PROMPTS[:4]))
    assert engine.texts() == before
    status = engine.wait(lambda s: s["controller"]["state"]["batch_size"] > 0)
    controller = status["controller"]
    assert status["active"], status["reason"]
    assert controller["running"]
    assert controller["state"]["survival"][0] > 0
    assert controller["steps_lost"] == controller["steps_implausible"] == 0
    told = engine.store.root / "live" / "live" / f"{status['run_id']}.json"
    engine.wait(lambda _: told.exists())
    snapshot = LiveSnapshot.from_json(told.read_bytes())
    assert snapshot.engine.run_id == status["run_id"]
    with engine.trace.open("rb") as lines:
        trace = parse_trace(lines)
    assert trace.header.seed == 1
    assert len(trace.entries) > 10
    text = engine.log.read_text(errors="replace")
    assert "TableTune: table [[" in text
    assert "TableTune is off" not in text
