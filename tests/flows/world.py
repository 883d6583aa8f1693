"""A deployments file whose engine is the stand-in, and what is seen of its flows from outside."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.local_stack import LocalStack
from tabletune.records.pointer import Pointer
from tabletune.store.base import Store
from tabletune.store.opening import open_store
from tests.pipeline.fake_environment import FakeEnvironment, make_environment, write_model

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@dataclass
class FlowWorld:
    """One deployment, `name`, kept in the stack's S3 below a prefix of its own."""

    folder: pathlib.Path
    stack: LocalStack
    name: str
    engine: FakeEnvironment
    model: pathlib.Path
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> pathlib.Path:
        return self.folder / "deployments.yaml"

    @property
    def out(self) -> pathlib.Path:
        return self.folder / "out"

    @property
    def store_url(self) -> str:
        return self.stack.client_environment()["TT_STORE"].replace("{name}", self.name)

    @property
    def store(self) -> Store:
        return open_store(self.store_url)

    def pointer(self, channel: str = "live") -> Pointer | None:
        return self.store.read_pointer(channel)[0]

    def configure(self, **fields: Any) -> None:
        """Write the deployments file; `fields` replace the usual ones. JSON is YAML."""
        self.fields |= fields
        one = {
            "model": str(self.model),
            "method": "ngram",
            "engine": str(self.engine.python),
            "store": self.store_url,
            "out": str(self.out),
            "max_num_seqs": 4,
            "max_draft_length": 2,
            "lengths": [0, 2],
            "prompt_count": 8,
            "concurrencies": [2],
            # On a busy host two windows of a tenth of a second differ by some per cent.
            "margins": {"best_fixed": 0.4, "incumbent": 0.4, "no_speculation": 0.4},
        } | self.fields
        content = {"version": 1, "deployments": {self.name: one}}
        self.config.write_text(json.dumps(content, indent=1))

    def start(
        self, flow: str, *parameters: str, environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """`tabletune flows run FLOW` as a process of its own, in its own group."""
        command = [sys.executable, "-m", "tabletune.cli", "flows", "run", flow, "--json"]
        command += ["-p", f"deployment={self.name}", "--config", str(self.config)]
        command += [part for one in parameters for part in ("-p", one)]
        return subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def new_world(folder: pathlib.Path, stack: LocalStack, name: str) -> FlowWorld:
    """A fresh deployment of which nothing was measured yet."""
    engine = make_environment(folder / "engine")
    world = FlowWorld(folder, stack, name, engine, write_model(folder / "model"))
    world.configure()
    return world
