"""One engine core behind two API server processes: `vllm serve --api-server-count 2`."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from promoted_store import PromotedStore

from tabletune.measure.launch import HOST, PluginMode
from tabletune.measure.runner import start_engine
from tests.engines import BOOT_DEADLINE_S, LONGEST, MAX_NUM_SEQS, engine_launch, fingerprint_at

pytestmark = pytest.mark.engine

SERVERS = 2
POLL_S = 0.5
# The kernel deals connections out at random; that all of these go to one server never happens.
CONNECTIONS = 24
ONE, TWO = [0, *[1] * MAX_NUM_SEQS], [0, *[2] * MAX_NUM_SEQS]
SERVE = Path(__file__).with_name("serve_command.py")


@dataclass
class Served:
    """The engine as its clients see it, each call over a connection of its own."""

    url: str
    model: str
    store: PromotedStore

    def get(self, path: str) -> httpx.Response:
        reply = httpx.get(self.url + path, timeout=60.0)
        assert reply.status_code == 200, reply.text
        return reply

    def status(self) -> dict[str, Any]:
        return self.get("/tabletune/status").json()

    def complete(self) -> str:
        body = {"model": self.model, "prompt": "one two three one two three one", "max_tokens": 16}
        reply = httpx.post(
            self.url + "/v1/completions",
            json={**body, "temperature": 0, "ignore_eos": True},
            timeout=120.0,
        )
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["text"]

    def wait_for(self, table: list[int]) -> dict[str, Any]:
        """The first status with a table in force."""
        begun_s = time.monotonic()
        while True:
            status = self.status()
            if status["table"] == [[1, MAX_NUM_SEQS, table[1]]]:
                return status
            assert time.monotonic() - begun_s < 30, json.dumps(status, indent=1)[-4000:]
            time.sleep(0.1)

    def ask_every_server(self, path: str) -> list[str]:
        """Answers over connections of their own, until each server process gave one.

        The kernel deals connections out, and nothing in an answer tells by whom it was given:
        the connection's other end does.
        """
        answers: list[str] = []
        servers: set[int] = set()
        for _ in range(CONNECTIONS):
            with httpx.Client(base_url=self.url, timeout=60.0) as client:
                reply = client.get(path)
                assert reply.status_code == 200, reply.text
                answers.append(reply.text)
                own = reply.extensions["network_stream"].get_extra_info("client_addr")
                servers |= owners(own[1])
        assert len(servers) == SERVERS, servers
        return answers


def owners(client_port: int) -> set[int]:
    """The processes that hold the other end of an open connection over the loopback interface."""
    inodes = {
        f"socket:[{fields[9]}]"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if int((fields := line.split())[2].rpartition(":")[2], 16) == client_port
    }
    found: set[int] = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(descriptor) in inodes:
                found.add(int(descriptor.parts[2]))
    return found


@pytest.fixture(scope="module")
def served(
    engine_python: Path, engine_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("servers")
    fingerprint = fingerprint_at(engine_python, engine_model)
    store = PromotedStore(folder / "store", fingerprint, MAX_NUM_SEQS, LONGEST)
    store.promote(ONE)
    plain = engine_launch(engine_python, engine_model, folder / "engine.log", PluginMode.SERVE)
    launch = replace(
        plain,
        command=(
            *(str(engine_python), str(SERVE), "serve", str(engine_model)),
            *("--host", HOST, "--port", "{port}", *plain.arguments),
            *("--api-server-count", str(SERVERS), "--disable-log-stats"),
        ),
        environment={
            **plain.environment,
            "TABLETUNE_SOURCE": store.url,
            "TABLETUNE_MODE": "follow",
            "TABLETUNE_POLL_S": str(POLL_S),
            "TABLETUNE_CACHE": str(folder / "cache"),
        },
    )
    with start_engine(launch, BOOT_DEADLINE_S) as running:
        name = httpx.get(f"{running.base_url}/v1/models", timeout=60.0).json()["data"][0]["id"]
        yield Served(running.base_url, name, store)


def test_every_server_tells_the_same_and_a_promotion_reaches_the_core_once(served: Served) -> None:
    before = served.wait_for(ONE)
    assert before["active"], before["reason"]
    answers = [json.loads(text) for text in served.ask_every_server("/tabletune/status")]
    assert {status["run_id"] for status in answers} == {before["run_id"]}

    texts = {served.complete() for _ in range(4)}
    assert len(texts) == 1

    served.store.promote(TWO)
    after = served.wait_for(TWO)
    assert after["swaps"] == before["swaps"] + 1
    assert {served.complete() for _ in range(4)} == texts

    status = served.status()
    assert status["swaps"] == before["swaps"] + 1
    assert status["totals"]["steps_by_draft_length"][2] > 0
    assert status["totals"]["output_tokens"] == 8 * 16


def test_metrics_are_those_of_the_one_core_whichever_server_is_scraped(served: Served) -> None:
    status = served.status()
    for page in served.ask_every_server("/metrics"):
        samples = [
            sample
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name in ("tabletune_steps_total", "tabletune_swaps_total")
        ]
        assert {sample.labels["run_id"] for sample in samples} == {status["run_id"]}
        assert {sample.name: sample.value for sample in samples} == {
            "tabletune_steps_total": status["steps"],
            "tabletune_swaps_total": status["swaps"],
        }
        assert len(samples) == 2
