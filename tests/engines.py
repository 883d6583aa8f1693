"""The real engines of the tests: vLLM on the CPU with a small real model and n-gram drafts.

A boot is the dear part: three processes import vLLM, one after the other. So one measuring
engine serves every test that needs nothing but an engine with the plugin (fixture
`measuring_engine`). The test that ends it says so with the marker `ends_engine`: it runs after
the others, and before tests that boot engines of their own.
"""

import json
import pathlib
import shutil
import struct
from dataclasses import dataclass

from tabletune.measure.api import EngineApi
from tabletune.measure.launch import EngineLaunch, PluginMode
from tabletune.measure.runner import RunningEngine
from tabletune.pipeline.identify import identify_target
from tabletune.pipeline.request import RunRequest
from tabletune.records.fingerprint import Fingerprint

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


def fingerprint_at(python: pathlib.Path, model: pathlib.Path) -> Fingerprint:
    """What a run of such an engine would find: probed in its environment."""
    request = RunRequest(
        model=str(model),
        method="ngram",
        engine=str(python),
        max_draft_length=LONGEST,
        max_num_seqs=MAX_NUM_SEQS,
    )
    return identify_target(request, python).fingerprint


def shorter_model(model: pathlib.Path, folder: pathlib.Path, layers: int) -> pathlib.Path:
    """A copy of a model with its first layers only, for tests that need no sense in the text.

    Each of its steps takes a fraction of the time. The weights are copied as bytes: a
    safetensors file is the header's length, the header as JSON, and the tensors' bytes.
    """
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
    with (
        (model / "model.safetensors").open("rb") as full,
        (folder / "model.safetensors").open("wb") as short,
    ):
        (length,) = struct.unpack("<Q", full.read(8))
        tensors = json.loads(full.read(length))
        start = full.tell()
        kept: dict[str, dict[str, object]] = {"__metadata__": tensors.pop("__metadata__", {})}
        places: list[tuple[int, int]] = []
        end = 0
        for name, tensor in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
            _, _, rest = name.partition("model.layers.")
            if rest and int(rest.split(".")[0]) >= layers:
                continue
            first, last = tensor["data_offsets"]
            kept[name] = {**tensor, "data_offsets": [end, end + last - first]}
            places.append((first, last - first))
            end += last - first
        header = json.dumps(kept).encode()
        header += b" " * (-len(header) % 8)
        short.write(struct.pack("<Q", len(header)) + header)
        for first, size in places:
            full.seek(start + first)
            short.write(full.read(size))
    return folder
