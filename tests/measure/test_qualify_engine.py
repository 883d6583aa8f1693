"""Qualification of a real engine: vLLM on the CPU with the n-gram drafter."""

import os
import signal

import pytest

from tabletune.measure.clock import SystemClock
from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Progress, Silent
from tabletune.measure.qualify import qualify
from tabletune.measure.qualify_result import QualificationResult
from tests.engines import LENGTHS, MAX_NUM_SEQS, SharedEngine

pytestmark = pytest.mark.engine

PROMPTS = [
    "Count: one two three, one two three, one two three, one two",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n",
    "The capital of France is Paris. The capital of Italy is",
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday,",
    "A list of fruit: apple, banana, cherry, apple, banana,",
    "for i in range(10):\n    print(i)\nfor j in range(10):\n",
    "Once upon a time there was a small village by the sea.",
    "Question: what is two plus two? Answer: four. Question:",
]


class KillsAt(Silent):
    """Kills the engine's server when a stage begins."""

    def __init__(self, stage: str, pid: int) -> None:
        self.stage, self.pid = stage, pid

    def start(self, name: str, total: float | None = None) -> None:
        if self.stage in name:
            os.kill(self.pid, signal.SIGKILL)


def qualify_it(shared: SharedEngine, progress: Progress) -> QualificationResult:
    requests = [LoadRequest(p, 500 + 40 * i, {"ignore_eos": True}) for i, p in enumerate(PROMPTS)]
    engine = shared.engine
    return qualify(
        shared.api,
        shared.model,
        requests,
        LENGTHS,
        MAX_NUM_SEQS,
        clock=SystemClock(),
        progress=progress,
        died=lambda: "\n".join(engine.log_tail()) if engine.died() else None,
        step_kind="mixed",
    )


def test_a_real_engine_qualifies(measuring_engine: SharedEngine):
    result = qualify_it(measuring_engine, Silent())
    assert measuring_engine.api.healthy()
    assert result.passed, result.reason
    faults = [check for check in result.failed if check.fault != "stall"]
    assert faults == [], "only host noise may show, and only as a stall"
    assert result.envelope.lengths == LENGTHS
    assert {c.batch_size for c in result.cells} >= {1, 4, 8}


@pytest.mark.ends_engine
def test_the_death_of_a_real_engine_is_noticed(measuring_engine: SharedEngine):
    assert measuring_engine.engine.pid is not None
    killed = qualify_it(measuring_engine, KillsAt("batch size 4", measuring_engine.engine.pid))
    assert not killed.passed
    assert killed.fatal is not None
    assert killed.fatal.fault == "crash", killed.reason
    assert "batch size 4" in killed.fatal.name
    assert killed.envelope.allowed == {}
    assert measuring_engine.engine.stop() == []
