"""The length in force is exact with vLLM's asynchronous scheduler and with preemptions."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

TRIAL = Path(__file__).with_name("async_scheduler_trial.py")
SCRIPT = ([3] * 5 + [1] * 4) * 3


TRIALS = ((200, False), (16, False), (16, True))


@pytest.fixture(scope="module")
def replies(engine_python: Path, engine_model: Path) -> list[Any]:
    """Of all trials from one process: importing vLLM is the dear part."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TABLETUNE_", "VLLM_"))}
    numbers = [str(int(number)) for trial in TRIALS for number in trial]
    done = subprocess.run(
        [str(engine_python), str(TRIAL), str(engine_model), *numbers],
        capture_output=True,
        text=True,
        env=environ,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()[-len(TRIALS) :]]


@pytest.mark.parametrize(("number", "blocks"), [(i, trial[0]) for i, trial in enumerate(TRIALS)])
def test_records_equal_what_the_requests_said(replies: list[Any], number: int, blocks: int) -> None:
    reply = replies[number]
    assert reply["reason"] is None
    assert (reply["preemptions"] > 0) == (blocks < 100)
    recorded, in_force = reply["recorded"], reply["in_force"]
    assert [step[:3] for step in recorded] == reply["truth"]
    assert [step[2] for step in recorded][: len(SCRIPT)] == SCRIPT
    table = [4 if batch <= 2 else 2 if batch <= 5 else 0 for batch, *_ in recorded]
    assert [step[2] for step in recorded][len(SCRIPT) :] == table[len(SCRIPT) :]
    for (*_, verified), lengths in zip(recorded, in_force, strict=True):
        assert verified == (lengths[0] if len(lengths) == 1 else -1)
    assert len(recorded) > len(SCRIPT) + 10
