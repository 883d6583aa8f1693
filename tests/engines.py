"""The real engines of the tests: vLLM on the CPU with a small real model and n-gram drafts.

A boot is the dear part: three processes import vLLM, one after the other. So one measuring
engine serves every test that needs nothing but an engine with the plugin (fixture
`measuring_engine`). The test that ends it says so with the marker `ends_engine`: it runs after
the others, and before tests that boot engines of their own.
"""

import json
import pathlib
from dataclasses import dataclass

from tabletune.measure.api import EngineApi
from tabletune.measure.launch import EngineLaunch, PluginMode
from tabletune.measure.runner import RunningEngine

MAX_NUM_SEQS = 8
MAX_MODEL_LEN = 1024
LONGEST = 4
#: Names each length, as the boot table of a capture plan does.
BOOT_TABLE = [[1, 1, 4], [2, 2, 2], [3, 3, 1], [4, MAX_NUM_SEQS, 0]]
LENGTHS = (0, 1, 2, 4)
SPECULATION = {
    "method": "ngram",
    "num_speculative_tokens": LONGEST,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
    "num_speculative_tokens_per_batch_size": BOOT_TABLE,
}
#: Compiling takes a minute on two cores and changes nothing that these tests look at.
EAGER = ("--enforce-eager",)
BOOT_DEADLINE_S = 300.0


@dataclass(frozen=True)
class SharedEngine:
    """A running engine, a client of it, and the name it serves the model under."""

    engine: RunningEngine
    api: EngineApi
    model: str


def engine_launch(
    python: pathlib.Path,
    model: pathlib.Path,
    log: pathlib.Path,
    plugin: PluginMode,
    arguments: tuple[str, ...] = EAGER,
) -> EngineLaunch:
    """One engine as all tests want it; what differs is the plugin, and `arguments`."""
    return EngineLaunch(
        python=python,
        model=str(model),
        log_path=log,
        arguments=(
            *("--dtype", "float32", "--max-model-len", str(MAX_MODEL_LEN)),
            *("--max-num-seqs", str(MAX_NUM_SEQS)),
            *("--speculative-config", json.dumps(SPECULATION), *arguments),
        ),
        environment={"VLLM_CPU_KVCACHE_SPACE": "1"},
        plugin=plugin,
    )
