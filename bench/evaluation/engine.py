"""The engine of a comparison: booted once, with the plugin, the policies and a table to adapt."""

from __future__ import annotations

import json
import os
import pathlib
import secrets
import time
from collections.abc import Sequence
from typing import Any

import httpx

from bench.controller_engine import switch_survival
from bench.evaluation.arms import Arm, Known, documented, specs
from bench.evaluation.scenario import Scenario, Traffic
from tabletune.durable_file import write_durably
from tabletune.measure.clock import SystemClock
from tabletune.measure.progress import Progress
from tabletune.pipeline.build import Evidence
from tabletune.pipeline.identify import Target
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.session import EngineSession, LiveEngine
from tabletune.records.table import TableVersion, table_from_dense
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import promote

CHANNEL = "bench"
FOLLOW_S = 30.0
POLICIES = "policies.json"
STORE = "store"
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
    survival: what its synthetic acceptance is now; None where that is not known.
    """

    def __init__(
        self,
        live: LiveEngine,
        store: FolderStore,
        folder: pathlib.Path,
        progress: Progress,
        survival: tuple[float, ...] | None,
    ) -> None:
        self.live, self.store, self._folder, self.progress = live, store, folder, progress
        self.adapts: str | None = None
        self.survival = survival
        self._http = httpx.Client(base_url=live.api.address.base_url, timeout=60, trust_env=False)

    def know(self, scenario: Scenario, known: Known) -> None:
        """Write the scenario's policies down where the engine looks for them."""
        allowed = {k: [list(pair) for pair in v] for k, v in known.envelope.allowed.items()}
        file = {"max_num_seqs": known.max_num_seqs, "longest": known.longest, "envelope": allowed}
        # Once more the same policies begin anew, without what they had learnt.
        file |= {"policies": specs(scenario, known), "written": secrets.token_hex(8)}
        write_durably(self._folder / POLICIES, json.dumps(file).encode())

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
        """Change synthetic acceptance while serving, where it is another."""
        if self.survival != traffic.survival:
            switch_survival(self.live, list(traffic.survival))
        self.survival = traffic.survival

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


def bench_session(
    scenarios: Sequence[Scenario],
    request: RunRequest,
    target: Target,
    folder: pathlib.Path,
    progress: Progress,
    switches: bool = False,
) -> EngineSession:
    """A session whose measuring engine knows the scenarios' policies, and adapts.

    So a deployment is measured and compared on one boot, under its own capture plan.
    folder: for the store, the policies and the logs. switches: acceptance is changed while
        serving though no scenario does so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    FolderStore(folder / STORE).put(target.fingerprint)  # the engine finds a store at its start
    (folder / POLICIES).unlink(missing_ok=True)
    switches |= any(len(scenario.traffic) > 1 for scenario in scenarios)
    extension = ("--worker-extension-cls", "bench.synthetic_acceptance.SyntheticAcceptance")
    return EngineSession(
        request,
        target.python,
        target.platform,
        folder,
        progress,
        environment=environment(scenarios[0], folder, os.environ.get("PYTHONPATH", ""), switches),
        measuring_extra=extension if switches else (),
    )


def bench_engine(
    session: EngineSession,
    evidence: Evidence,
    folder: pathlib.Path,
    booted_with: tuple[float, ...] | None,
) -> BenchEngine:
    """The session's measuring engine, with the evidence in the store that it follows.

    booted_with: the survival of its synthetic acceptance; None where it may have changed since.

    Raises:
        EngineError: it does not start.
    """
    store = FolderStore(folder / STORE)
    for record in (
        *(evidence.fingerprint, evidence.plan, evidence.qualification),
        *(evidence.profile, evidence.prior),
    ):
        store.put(record)
    live = session.measuring(evidence.plan)
    return BenchEngine(live, store, folder, session.progress, booted_with)


def engine_path(inherited: str) -> str:
    """PYTHONPATH of an engine that benchmarks reach into. inherited: what it is so far.

    The plugin runs from the repository, as the rest does; vLLM finds it by the metadata that
    the engine environment has of it.
    """
    path = [str(ENGINE_SIDE), str(REPOSITORY), str(REPOSITORY / "plugin")]
    return os.pathsep.join([*path, *([inherited] if inherited else [])])


def environment(
    scenario: Scenario, folder: pathlib.Path, inherited: str, switches: bool = False
) -> dict[str, str]:
    """The engine's variables. inherited: PYTHONPATH so far."""
    found = {
        "PYTHONPATH": engine_path(inherited),
        "BENCH_POLICIES": str(folder / POLICIES),
        "TABLETUNE_SOURCE": FolderStore(folder / STORE).url,
        "TABLETUNE_CHANNEL": CHANNEL,
        "TABLETUNE_MODE": "adapt",
        "TABLETUNE_POLL_S": "1",
        "TABLETUNE_TRACE": str(folder / "decisions.jsonl"),
    }
    if switches:
        found["VLLM_SERVER_DEV_MODE"] = "1"
    return found | scenario.engine_environment
