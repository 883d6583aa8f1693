"""The engine of a comparison: booted once, with the plugin, the policies and a table to adapt.

Or several equal ones behind a router: what is done to one is done to all.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import time
from collections.abc import Iterator, Sequence, Set
from functools import partial
from typing import Any

import httpx

from bench.controller_engine import switch_survival
from bench.evaluation.arms import Arm, Known, documented, specs
from bench.evaluation.scenario import Scenario, Traffic
from tabletune.durable_file import write_durably
from tabletune.measure.clock import SystemClock
from tabletune.measure.progress import Progress, Silent
from tabletune.pipeline.build import Evidence
from tabletune.pipeline.identify import Target
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.session import EngineSession, LiveEngine, booted_beside
from tabletune.records.plan import CapturePlan
from tabletune.records.table import TableVersion, table_from_dense
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import promote

CHANNEL = "bench"
FOLLOW_S = 30.0
POLICIES = "policies.json"
STORE = "store"
TRACE = "decisions.jsonl"
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
OWN_CORES = "VLLM_CPU_OMP_THREADS_BIND"
"""Which cores a CPU engine computes on (vllm/envs.py)."""
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
    """A running engine, or several equal ones, on which arms take turns.

    live: the engine, or the first of them. replicas: all of them.
    adapts: None, or why the controller does not run here; its arm is then left out.
    survival: what its synthetic acceptance is now; None where that is not known.
    """

    def __init__(
        self,
        replicas: Sequence[LiveEngine],
        store: FolderStore,
        folder: pathlib.Path,
        progress: Progress,
        survival: tuple[float, ...] | None,
    ) -> None:
        self.replicas, self.live = tuple(replicas), replicas[0]
        self.store, self._folder, self.progress = store, folder, progress
        self.adapts: str | None = None
        self.survival = survival
        self._http = [
            httpx.Client(base_url=one.api.address.base_url, timeout=60, trust_env=False)
            for one in replicas
        ]

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
        for answer in self._table(arm.body):
            if not answer.get("active"):
                raise ComparisonError(
                    f"under {arm.name} the plugin is off: {answer.get('reason')}", "see the log"
                )

    def report(self) -> dict[str, Any]:
        """What the policies' decisions cost so far, on the first engine."""
        return dict(self._table({"policy_report": True})[0]["policies"])

    def controller(self) -> dict[str, Any]:
        """The controller's share of the plugin's status, on the first engine."""
        return _controller(self.live)

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
        while behind := [
            told
            for told in map(_controller, self.replicas)
            if told.get("version") != version.content_hash
        ]:
            if time.monotonic() > deadline_s:
                self.adapts = f"the version was not followed: {behind[0]}"[:500]
                return
            time.sleep(0.1)
        notes = [note for live in self.replicas for note in _controller(live).get("notes") or ()]
        self.adapts = f"it does not adapt: {notes}" if notes else None

    def switch(self, traffic: Traffic) -> None:
        """Change synthetic acceptance while serving, where it is another."""
        if self.survival != traffic.survival:
            for live in self.replicas:
                switch_survival(live, list(traffic.survival))
        self.survival = traffic.survival

    def _table(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The answer of each engine."""
        answers = [http.post("/tabletune/table", json=body) for http in self._http]
        for answer in answers:
            if answer.is_error:
                raise ComparisonError(f"{body}: {answer.text[:400]}", "see the engine's log")
        return [answer.json() for answer in answers]


def _controller(live: LiveEngine) -> dict[str, Any]:
    found = live.api.status().get("controller")
    return found if isinstance(found, dict) else {}


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
    replica: int = 0,
) -> EngineSession:
    """A session whose measuring engine knows the scenarios' policies, and adapts.

    So a deployment is measured and compared on one boot, under its own capture plan.
    folder: for the store, the policies and the logs. switches: acceptance is changed while
        serving though no scenario does so. replica: which of several equal engines it is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    FolderStore(folder / STORE).put(target.fingerprint)  # the engine finds a store at its start
    (folder / POLICIES).unlink(missing_ok=True)
    logs = folder / f"replica-{replica}" if replica else folder
    logs.mkdir(exist_ok=True)
    switches |= any(len(scenario.traffic) > 1 for scenario in scenarios)
    variables = environment(scenarios[0], folder, os.environ.get("PYTHONPATH", ""), switches)
    if replica:
        variables["TABLETUNE_TRACE"] = str(logs / TRACE)
    if scenarios[0].replicas > 1 and target.platform == "cpu":
        own = cores_of(replica, scenarios[0].replicas, os.sched_getaffinity(0))
        variables[OWN_CORES] = ",".join(map(str, own))
    elif scenarios[0].replicas > 1:
        there = target.fingerprint.device.count
        visible = os.environ.get(VISIBLE_GPUS)
        variables[VISIBLE_GPUS] = gpus_of(replica, scenarios[0].gpus, there, visible)
    extension = ("--worker-extension-cls", "bench.synthetic_acceptance.SyntheticAcceptance")
    return EngineSession(
        request,
        target.python,
        target.platform,
        logs,
        progress,
        environment=variables,
        measuring_extra=extension if switches else (),
    )


def cores_of(replica: int, replicas: int, cores: Set[int]) -> list[int]:
    """A replica's share of the processor's cores. Engines that compute on the same ones wait for
    each other within every layer, and hardly move.

    >>> cores_of(1, 2, {0, 1, 2, 3})
    [2, 3]
    """
    order, share = sorted(cores), max(1, len(cores) // replicas)
    first = min(replica * share, len(order) - share)
    return order[first : first + share]


def gpus_of(replica: int, gpus: int, there: int, visible: str | None) -> str:
    """Which GPUs a replica sees, each so many of its own.

    there: how many this process sees. visible: their names, None for all of the host.

    Raises:
        ComparisonError: there are not so many.
    """
    first, last = replica * gpus, (replica + 1) * gpus
    names = [str(number) for number in range(there)] if visible is None else visible.split(",")
    if len(names) < last or there < last:
        found = f"replica {replica + 1} needs {gpus} GPUs of its own, {there} are visible in all"
        raise ComparisonError(found, f"use a host with {last} of them, and see {VISIBLE_GPUS}")
    return ",".join(names[first:last])


@contextlib.contextmanager
def further_replicas(
    scenarios: Sequence[Scenario],
    request: RunRequest,
    target: Target,
    folder: pathlib.Path,
    switches: bool = False,
) -> Iterator[list[EngineSession]]:
    """The sessions of the replicas but the first, see `bench_session`."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                bench_session(scenarios, request, target, folder, Silent(), switches, number)
            )
            for number in range(1, scenarios[0].replicas)
        ]


def bench_engine(
    session: EngineSession,
    evidence: Evidence,
    folder: pathlib.Path,
    booted_with: tuple[float, ...] | None,
    further: Sequence[EngineSession] = (),
) -> BenchEngine:
    """The session's measuring engine, with the evidence in the store that it follows.

    booted_with: the survival of its synthetic acceptance; None where it may have changed since.
    further: the sessions of its replicas; all that do not run yet boot side by side.

    Raises:
        EngineError: it does not start.
    """
    store = FolderStore(folder / STORE)
    for record in (
        *(evidence.fingerprint, evidence.plan, evidence.qualification),
        *(evidence.profile, evidence.prior),
    ):
        store.put(record)
    replicas = booted((session, *further), evidence.plan)
    return BenchEngine(replicas, store, folder, session.progress, booted_with)


def booted(sessions: Sequence[EngineSession], plan: CapturePlan) -> list[LiveEngine]:
    """The measuring engine of each, booted side by side where they do not run.

    Raises:
        EngineError: one does not start; the others' boots are given up.
    """
    if len(sessions) == 1:
        return [sessions[0].measuring(plan)]
    return booted_beside([partial(session.measuring, plan) for session in sessions])


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
        "TABLETUNE_TRACE": str(folder / TRACE),
    }
    if switches:
        found["VLLM_SERVER_DEV_MODE"] = "1"
    return found | scenario.engine_environment
