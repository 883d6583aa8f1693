"""The engine of a comparison: booted once, with the plugin, the policies and a table to adapt."""

from __future__ import annotations

import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import httpx

from bench.controller_engine import switch_survival
from bench.evaluation.arms import Arm, Known, documented, specs
from bench.evaluation.scenario import Scenario, Traffic
from bench.evaluation.workspace_facts import Facts
from tabletune.measure.api import EngineAddress, EngineApi
from tabletune.measure.clock import SystemClock
from tabletune.measure.launch import EngineLaunch, PluginMode
from tabletune.measure.progress import Progress
from tabletune.measure.runner import start_engine
from tabletune.pipeline.engine_config import measuring_arguments
from tabletune.pipeline.session import CPU_KV_CACHE, CPU_KV_CACHE_GIB, LiveEngine
from tabletune.records.table import TableVersion, table_from_dense
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import promote

CHANNEL = "bench"
FOLLOW_S = 30.0
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
ENGINE_SIDE = REPOSITORY / "bench" / "engine_side"


class ComparisonError(RuntimeError):
    """The engine does not do what the comparison needs.

    Attributes: `found`, `advice`.
    """

    def __init__(self, found: str, advice: str) -> None:
        self.found, self.advice = found, advice
        super().__init__(f"{found}; {advice}")


class BenchEngine:
    """A running engine on which arms take turns.

    adapts: None, or why the controller does not run here; its arm is then left out.
    """

    def __init__(self, live: LiveEngine, store: FolderStore) -> None:
        self.live, self.store = live, store
        self.adapts: str | None = None
        self._http = httpx.Client(base_url=live.api.address.base_url, timeout=60, trust_env=False)

    def put(self, arm: Arm) -> None:
        """Put an arm in force from the next step on.

        Raises:
            ComparisonError: the engine refuses, or its plugin is off.
        """
        answer = self._table(arm.body)
        if not answer.get("active"):
            raise ComparisonError(
                f"under {arm.name} the plugin is off: {answer.get('reason')}", "see the log"
            )

    def report(self) -> dict[str, Any]:
        """What the policies' decisions cost so far."""
        return dict(self._table({"policy_report": True})["policies"])

    def controller(self) -> dict[str, Any]:
        """The controller's share of the plugin's status."""
        found = self.live.api.status().get("controller")
        return found if isinstance(found, dict) else {}

    def promote(self, version: TableVersion) -> None:
        """Promote by force and wait until the engine follows.

        Raises:
            ComparisonError: it does not.
        """
        self.store.put(version)
        now = SystemClock().utc()
        promote(
            self.store, CHANNEL, version.content_hash, None, now, "bench", "comparison", force=True
        )
        deadline_s = time.monotonic() + FOLLOW_S
        while self.controller().get("version") != version.content_hash:
            if time.monotonic() > deadline_s:
                self.adapts = f"the version was not followed: {self.controller()}"[:500]
                return
            time.sleep(0.1)
        notes = self.controller().get("notes")
        self.adapts = f"it does not adapt: {notes}" if notes else None

    def switch(self, traffic: Traffic) -> None:
        """Change synthetic acceptance while serving."""
        switch_survival(self.live, list(traffic.survival))

    def _table(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._http.post("/tabletune/table", json=body)
        if answer.is_error:
            raise ComparisonError(f"{body}: {answer.text[:400]}", "see the engine's log")
        found: dict[str, Any] = answer.json()
        return found


def promoted_version(scenario: Scenario, tuned: TableVersion, known: Known) -> TableVersion:
    """What the controller starts from."""
    size = known.max_num_seqs
    if scenario.promoted == "tuned table":
        return tuned
    if scenario.promoted == "documented table":
        lengths = documented(scenario, known)
    else:
        length = max(known.lengths) if scenario.promoted == "longest" else min(known.lengths)
        lengths = known.within((0, *[length] * size))
    table = table_from_dense(list(lengths), tuned.table.max_draft_length)
    return tuned.model_copy(update={"table": table})


def environment(
    scenario: Scenario, facts: Facts, store_url: str, policies: pathlib.Path, inherited: str
) -> dict[str, str]:
    """The engine's variables. inherited: PYTHONPATH so far.

    The plugin runs from the repository, as the rest does; vLLM finds it by the metadata that
    the engine environment has of it.
    """
    path = [str(ENGINE_SIDE), str(REPOSITORY), str(REPOSITORY / "plugin")]
    path += [inherited] if inherited else []
    found = {
        "PYTHONPATH": os.pathsep.join(path),
        "BENCH_POLICIES": str(policies),
        "TABLETUNE_SOURCE": store_url,
        "TABLETUNE_CHANNEL": CHANNEL,
        "TABLETUNE_MODE": "adapt",
        "TABLETUNE_POLL_S": "1",
    }
    if len(scenario.traffic) > 1:
        found["VLLM_SERVER_DEV_MODE"] = "1"
    if facts.target.platform == "cpu" and CPU_KV_CACHE not in os.environ:
        found[CPU_KV_CACHE] = CPU_KV_CACHE_GIB
    return found | scenario.engine_environment


@contextmanager
def boot(
    scenario: Scenario,
    facts: Facts,
    known: Known,
    folder: pathlib.Path,
    progress: Progress,
    boot_deadline_s: float = 1200.0,
) -> Iterator[BenchEngine]:
    """The engine under the deployment's own capture plan, stopped at the end.

    folder: for the store, the policies and the log.

    Raises:
        EngineError: it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    store = FolderStore(folder / "store")
    evidence = facts.evidence
    for record in (
        *(evidence.fingerprint, evidence.plan, evidence.qualification),
        *(evidence.profile, evidence.prior),
    ):
        store.put(record)
    policies = folder / "policies.json"
    allowed = {k: [list(pair) for pair in v] for k, v in known.envelope.allowed.items()}
    file = {"max_num_seqs": known.max_num_seqs, "longest": known.longest, "envelope": allowed}
    policies.write_text(json.dumps(file | {"policies": specs(scenario, known)}))
    arguments = measuring_arguments(facts.request, evidence.plan)
    if len(scenario.traffic) > 1:
        extension = "bench.synthetic_acceptance.SyntheticAcceptance"
        arguments += ["--worker-extension-cls", extension]
    launch = EngineLaunch(
        python=facts.target.python,
        model=facts.request.model,
        log_path=folder / "engine.log",
        arguments=tuple(arguments),
        environment=MappingProxyType(
            environment(scenario, facts, store.url, policies, os.environ.get("PYTHONPATH", ""))
        ),
        plugin=PluginMode.MEASURE,
    )
    progress.start("boot")
    engine = start_engine(launch, boot_deadline_s, _told(progress))
    try:
        api = EngineApi(EngineAddress(engine.base_url), lost=engine.is_lost)
        progress.say(f"engine up after {engine.boot_time_s:.0f} s")
        yield BenchEngine(LiveEngine(engine, api, api.model()), store)
    finally:
        engine.stop()


def _told(progress: Progress) -> Callable[[Any], None]:
    return lambda boot: progress.advance(boot.waited_s, boot.phase)
