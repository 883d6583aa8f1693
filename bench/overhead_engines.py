"""Throughput of two real engines side by side: as it comes, and with the plugin at work."""

import concurrent.futures
import contextlib
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import numpy as np

from tabletune.measure.launch import EngineLaunch, PluginMode
from tabletune.measure.runner import RunningEngine, start_engine
from tabletune.pipeline.engine_config import serving_arguments
from tabletune.pipeline.identify import identify_target
from tabletune.pipeline.plans import choose_plans
from tabletune.pipeline.request import RunRequest
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.boot_table import boot_table
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.plan import Envelope
from tabletune.records.step_profile import Cell, Profile
from tabletune.records.table import Parents, TableVersion, table_from_dense
from tabletune.records.vllm_format import to_vllm
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import promote

LONGEST, LENGTH = 4, 2
AT = "2026-01-01T00:00:00+00:00"
BOOT_S = 300.0
WARM_UP = 2
WITH, WITHOUT, AGAIN = "with", "without", "without, another engine"


@dataclass(frozen=True)
class Setting:
    """What every engine serves, and how it is loaded.

    request: the deployment; its largest batch size is the concurrency too.
    tokens: output tokens of each request of a window.
    again: a third engine without the plugin, which shows what two engines differ by anyway.
    environment: of every engine.
    length: the draft length of the promoted table.
    """

    request: RunRequest
    tokens: int
    again: bool = False
    length: int = LENGTH
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def size(self) -> int:
        """Requests at a time."""
        return self.request.max_num_seqs


def cpu_setting(python: pathlib.Path, model: pathlib.Path) -> Setting:
    """A small model on a processor, with the n-gram drafter."""
    request = RunRequest(
        model=str(model),
        method="ngram",
        engine=str(python),
        max_draft_length=LONGEST,
        max_num_seqs=8,
        engine_args=("--dtype", "float32", "--max-model-len", "512", "--enforce-eager"),
        speculative_extra={"prompt_lookup_max": 4, "prompt_lookup_min": 2},
    )
    return Setting(request, tokens=32, environment={"VLLM_CPU_KVCACHE_SPACE": "1"})


def throughput(setting: Setting, pairs: int, logs: pathlib.Path | None) -> dict[str, Any]:
    """Tokens per second of every engine, in `pairs` rounds of windows, and their ratios.

    logs: a new folder for the engines' logs, None to throw them away.
    """
    model = setting.request.model
    with contextlib.ExitStack() as stack:
        folder = logs or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        version, environment = promoted_in(folder, setting)
        plain = launch_with(setting, version, folder / "without.log", PluginMode.OFF, {})
        launches = {
            WITHOUT: plain,
            WITH: launch_with(setting, version, folder / "with.log", PluginMode.SERVE, environment),
        }
        if setting.again:
            launches[AGAIN] = replace(plain, log_path=folder / "again.log")
        clients: dict[str, httpx.Client] = {}
        pids: dict[str, int] = {}
        for side, running in _booted(launches, stack).items():
            assert running.pid is not None
            pids[side] = running.pid
            clients[side] = stack.enter_context(
                httpx.Client(base_url=running.base_url, timeout=300.0)
            )
            print(f"{side}: booted in {running.boot_time_s:.0f} s", file=sys.stderr)
            for _ in range(WARM_UP):
                window_tok_s(clients[side], model, 0, setting)
        windows: dict[str, list[float]] = {side: [] for side in clients}
        busy: dict[str, list[float]] = {side: [] for side in clients}
        for number in range(pairs):
            order = list(clients) if number % 2 == 0 else list(clients)[::-1]
            for side in order:
                begun_s = processor_s(pids[side])
                windows[side].append(window_tok_s(clients[side], model, number, setting))
                busy[side].append(processor_s(pids[side]) - begun_s)
            print(f"pair {number + 1} of {pairs}", file=sys.stderr)
        status = clients[WITH].get("/tabletune/status").json()
    found = {
        "what": f"{setting.size} requests at a time, {setting.tokens} tokens each",
        "table": to_vllm(boot_table(version).table),
        "tok_s": {side: [round(v, 2) for v in values] for side, values in windows.items()},
        "processor_s": {side: [round(v, 3) for v in values] for side, values in busy.items()},
        "ratio": _ratio(windows, WITH, WITHOUT),
        # Each window has the same tokens; less depends on who else uses the machine.
        "processor_ratio": _ratio(busy, WITH, WITHOUT),
    }
    if setting.again:
        found["ratio_to_the_other_engine"] = _ratio(windows, WITH, AGAIN)
        found["ratio_of_the_engines_without"] = _ratio(windows, AGAIN, WITHOUT)
    return found | {
        "plugin": {
            "active": status["active"],
            "mode": status["controller"]["mode"],
            "version": status["controller"]["version"],
            "decisions": status["controller"]["decisions_by_kind"],
            "steps": status["steps"],
        },
    }


def _booted(
    launches: Mapping[str, EngineLaunch], stack: contextlib.ExitStack
) -> dict[str, RunningEngine]:
    """All engines, booted at once; the stack stops them, also those beside one that fails."""
    with concurrent.futures.ThreadPoolExecutor(len(launches)) as pool:
        booting = {
            side: pool.submit(start_engine, launch, BOOT_S) for side, launch in launches.items()
        }
    for each in booting.values():
        if each.exception() is None:
            stack.enter_context(each.result())
    return {side: each.result() for side, each in booting.items()}


def _ratio(values: Mapping[str, Sequence[float]], of: str, to: str) -> dict[str, float]:
    return interval(np.array(values[of]) / np.array(values[to]))


def interval(ratios: Sequence[float] | np.ndarray, draws: int = 4000) -> dict[str, float]:
    """Geometric mean and its 95 % bootstrap interval."""
    logs = np.log(np.asarray(ratios))
    rng = np.random.default_rng(1)
    means = rng.choice(logs, (draws, len(logs))).mean(axis=1)
    low, high = np.exp(np.quantile(means, (0.025, 0.975)))
    return {
        "mean": round(float(np.exp(logs.mean())), 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "pairs": len(logs),
    }


def window_tok_s(client: httpx.Client, model: str, number: int, setting: Setting) -> float:
    """One window: all requests at once, until the last has its tokens."""

    def complete(request: int) -> int:
        # No prefix is shared with another window, so that nothing is cached.
        prompt = f"{number}/{request}: one two three four five, one two three four five, one"
        body = {"model": model, "prompt": prompt, "max_tokens": setting.tokens, "temperature": 0}
        reply = client.post("/v1/completions", json={**body, "ignore_eos": True})
        reply.raise_for_status()
        return reply.json()["usage"]["completion_tokens"]

    with concurrent.futures.ThreadPoolExecutor(setting.size) as pool:
        begun = time.perf_counter()
        tokens = sum(pool.map(complete, range(setting.size)))
        return tokens / (time.perf_counter() - begun)


def processor_s(pid: int) -> float:
    """Processor seconds of a process and all below it so far."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            parents.setdefault(int(fields[1]), []).append(number)
            spent[number] = int(fields[11]) + int(fields[12])
    below, total = [pid], 0
    while below:
        number = below.pop()
        total += spent.get(number, 0)
        below += parents.get(number, [])
    return total / os.sysconf("SC_CLK_TCK")


def promoted_in(folder: pathlib.Path, setting: Setting) -> tuple[TableVersion, dict[str, str]]:
    """A version promoted in a store in `folder`, and the variables of an engine that follows it.

    Such an engine learns and decides as in adapt, and swaps nothing: with and without the
    plugin the same work is done.
    """
    version = _version(folder / "store", setting)
    return version, {
        "TABLETUNE_SOURCE": (folder / "store").absolute().as_uri(),
        "TABLETUNE_MODE": "shadow",
        "TABLETUNE_CACHE": str(folder / "cache"),
        "TABLETUNE_TRACE": str(folder / "trace.jsonl"),
        "TABLETUNE_POLL_S": "1",
    }


def launch_with(
    setting: Setting,
    version: TableVersion,
    log: pathlib.Path,
    plugin: PluginMode,
    environment: dict[str, str],
) -> EngineLaunch:
    """An engine with the flags that `tabletune show` prints for this version."""
    request = setting.request
    return EngineLaunch(
        python=pathlib.Path(request.engine),
        model=request.model,
        log_path=log,
        arguments=tuple(serving_arguments(request, version, boot_table(version).table)),
        environment={**setting.environment, **environment},
        plugin=plugin,
    )


def _version(root: pathlib.Path, setting: Setting) -> TableVersion:
    """Promoted in a new store: one length everywhere, with a made-up profile and prior."""
    request = setting.request
    fingerprint = identify_target(request, pathlib.Path(request.engine)).fingerprint
    store = FolderStore(root)
    store.put(fingerprint)
    lengths = tuple(range(LONGEST + 1))
    size = request.max_num_seqs
    plan = choose_plans(request, fingerprint.device, fingerprint.engine, lengths)[0]
    parents = Parents(
        profile=store.put(_profile(fingerprint, request)),
        acceptance_prior=store.put(_prior(fingerprint.identity)),
    )
    version = TableVersion(
        table=table_from_dense([0, *[setting.length] * size], LONGEST),
        plan=plan,
        envelope=Envelope(allowed={str(k): ((1, size),) for k in lengths}),
        fingerprint=fingerprint.identity,
        parents=parents,
        created_at=AT,
    )
    promote(store, "live", store.put(version), None, AT, "bench", "overhead", force=True)
    return version


def _profile(fingerprint: Fingerprint, request: RunRequest) -> Profile:
    unit_s = 0.004 if fingerprint.device.platform == "cpu" else 0.00003
    cells = tuple(
        Cell(
            batch_size=b,
            draft_length=k,
            samples_s=(unit_s * (12 + b * (k + 1)),) * 20,
            scheduled_tok=float(b * (k + 1)),
            context_tok=100.0,
        )
        for b in range(1, request.max_num_seqs + 1)
        for k in range(LONGEST + 1)
    )
    return Profile(
        fingerprint=fingerprint.identity,
        plan="0" * 64,
        method="in_engine",
        step_kind=request.step_kind,
        prompt_tok=10,
        context_tok=100,
        cells=cells,
        wall_time_s=1.0,
        measured_at=AT,
    )


def _prior(fingerprint: str) -> AcceptancePrior:
    return AcceptancePrior(
        fingerprint=fingerprint,
        draft_length=LONGEST,
        source="measured",
        prompt_count=1,
        prompts_hash="",
        counts=PositionCounts(
            drafted_through=(400,) * LONGEST,
            accepted_through=tuple(int(400 * 0.7**i) for i in range(1, LONGEST + 1)),
            request_steps=400,
        ),
        wall_time_s=1.0,
        measured_at=AT,
    )
