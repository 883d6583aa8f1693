"""Qualification of a real engine: vLLM on the CPU with the n-gram drafter."""

import json
import os
import pathlib
import signal

import pytest

from tabletune.measure.api import EngineAddress, EngineApi
from tabletune.measure.clock import SystemClock
from tabletune.measure.launch import EngineLaunch
from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Progress, Silent
from tabletune.measure.qualify import qualify
from tabletune.measure.qualify_result import QualificationResult
from tabletune.measure.runner import start_engine

pytestmark = pytest.mark.engine

LENGTHS = (0, 1, 2, 4)
MAX_NUM_SEQS = 8
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


def test_a_real_engine_qualifies_and_its_death_is_noticed(
    engine_python: pathlib.Path, engine_model: pathlib.Path, tmp_path: pathlib.Path
):
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 2,
        # Each length is named, as a boot table of a capture plan does.
        "num_speculative_tokens_per_batch_size": [[1, 1, 4], [2, 2, 2], [3, 3, 1], [4, 8, 0]],
    }
    arguments = f"--dtype float32 --max-model-len 1024 --max-num-seqs {MAX_NUM_SEQS}"
    launch = EngineLaunch(
        engine_python,
        str(engine_model),
        tmp_path / "engine.log",
        (*arguments.split(), "--speculative-config", json.dumps(speculation)),
        {"VLLM_CPU_KVCACHE_SPACE": "1"},
    )
    requests = [LoadRequest(p, 500 + 40 * i, {"ignore_eos": True}) for i, p in enumerate(PROMPTS)]
    with start_engine(launch) as engine, EngineApi(EngineAddress(engine.base_url)) as api:

        def qualify_it(progress: Progress) -> QualificationResult:
            return qualify(
                api,
                str(engine_model),
                requests,
                LENGTHS,
                MAX_NUM_SEQS,
                clock=SystemClock(),
                progress=progress,
                died=lambda: "\n".join(engine.log_tail()) if engine.died() else None,
                step_kind="mixed",
            )

        result = qualify_it(Silent())
        assert api.healthy()
        assert engine.pid is not None
        killed = qualify_it(KillsAt("batch size 4", engine.pid))

    assert result.passed, result.reason
    faults = [check for check in result.failed if check.fault != "stall"]
    assert faults == [], "only host noise may show, and only as a stall"
    assert result.envelope.lengths == LENGTHS
    assert {c.batch_size for c in result.cells} >= {1, 4, 8}
    assert result.wall_time_s < 120

    assert not killed.passed
    assert killed.fatal is not None
    assert killed.fatal.fault == "crash", killed.reason
    assert "batch size 4" in killed.fatal.name
    assert killed.envelope.allowed == {}
    assert killed.wall_time_s < 60
