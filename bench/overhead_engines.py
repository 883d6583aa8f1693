"""Throughput of two real engines side by side: as it comes, and with the plugin at work."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np

from tabletune.measure.launch import EngineLaunch, PluginMode
from tabletune.measure.runner import start_engine
from tabletune.pipeline.identify import identify_target
from tabletune.pipeline.request import RunRequest
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.step_profile import Cell, Profile
from tabletune.records.table import Parents, TableVersion, table_from_dense
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import promote

SIZE, LONGEST, LENGTH = 8, 4, 2
CONCURRENCY, TOKENS = 8, 32
AT = "2026-01-01T00:00:00+00:00"
BOOT_S = 300.0


def throughput(
    python: pathlib.Path, model: pathlib.Path, pairs: int, logs: pathlib.Path | None
) -> dict[str, Any]:
    """Tokens per second of both, in `pairs` pairs of windows, and their ratio.

    logs: a new folder for the engines' logs, None to throw them away.
    """
    with contextlib.ExitStack() as stack:
        folder = logs or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = _store(folder / "store", python, model)
        environment = {
            "TABLETUNE_SOURCE": store.as_uri(),
            # Learns and decides as in adapt, and swaps nothing: both engines do the same work.
            "TABLETUNE_MODE": "shadow",
            "TABLETUNE_CACHE": str(folder / "cache"),
            "TABLETUNE_TRACE": str(folder / "trace.jsonl"),
            "TABLETUNE_POLL_S": "1",
        }
        launches = {
            "without": _launch(python, model, folder / "without.log", PluginMode.OFF, {}),
            "with": _launch(python, model, folder / "with.log", PluginMode.SERVE, environment),
        }
        clients: dict[str, httpx.Client] = {}
        pids: dict[str, int] = {}
        for side, launch in launches.items():
            running = stack.enter_context(start_engine(launch, BOOT_S))
            assert running.pid is not None
            pids[side] = running.pid
            clients[side] = stack.enter_context(
                httpx.Client(base_url=running.base_url, timeout=300.0)
            )
            window_tok_s(clients[side], str(model), 0)
        windows: dict[str, list[float]] = {side: [] for side in clients}
        busy: dict[str, list[float]] = {side: [] for side in clients}
        for number in range(pairs):
            order = list(clients) if number % 2 == 0 else list(clients)[::-1]
            for side in order:
                begun_s = processor_s(pids[side])
                windows[side].append(window_tok_s(clients[side], str(model), number))
                busy[side].append(processor_s(pids[side]) - begun_s)
            print(f"pair {number + 1} of {pairs}", file=sys.stderr)
        status = clients["with"].get("/tabletune/status").json()
    ratios = np.array(windows["with"]) / np.array(windows["without"])
    # Each window has the same tokens; less depends on who else uses the machine.
    busy_ratios = np.array(busy["with"]) / np.array(busy["without"])
    return {
        "what": f"{CONCURRENCY} requests at a time, {TOKENS} tokens each, K={LENGTH} everywhere",
        "tok_s": {side: [round(v, 2) for v in values] for side, values in windows.items()},
        "processor_s": {side: [round(v, 3) for v in values] for side, values in busy.items()},
        "ratio": interval(ratios),
        "processor_ratio": interval(busy_ratios),
        "plugin": {
            "active": status["active"],
            "mode": status["controller"]["mode"],
            "version": status["controller"]["version"],
            "decisions": status["controller"]["decisions_by_kind"],
            "steps": status["steps"],
        },
    }


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


def window_tok_s(client: httpx.Client, model: str, number: int) -> float:
    """One window: all requests at once, until the last has its tokens."""

    def complete(request: int) -> int:
        # No prefix is shared with another window, so that nothing is cached.
        prompt = f"{number}/{request}: one two three four five, one two three four five, one"
        body = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        reply = client.post("/v1/completions", json={**body, "ignore_eos": True})
        reply.raise_for_status()
        return reply.json()["usage"]["completion_tokens"]

    with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
        begun = time.perf_counter()
        tokens = sum(pool.map(complete, range(CONCURRENCY)))
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


def _launch(
    python: pathlib.Path,
    model: pathlib.Path,
    log: pathlib.Path,
    plugin: PluginMode,
    environment: dict[str, str],
) -> EngineLaunch:
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": LONGEST,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 2,
        "num_speculative_tokens_per_batch_size": [[1, SIZE, LENGTH]],
    }
    return EngineLaunch(
        python=python,
        model=str(model),
        log_path=log,
        arguments=(
            *("--dtype", "float32", "--max-model-len", "512", "--enforce-eager"),
            *("--max-num-seqs", str(SIZE), "--speculative-config", json.dumps(speculation)),
        ),
        environment={"VLLM_CPU_KVCACHE_SPACE": "1", **environment},
        plugin=plugin,
    )


def _store(root: pathlib.Path, python: pathlib.Path, model: pathlib.Path) -> pathlib.Path:
    """A store whose promoted table is the boot table, with a made-up profile and prior."""
    request = RunRequest(
        model=str(model),
        method="ngram",
        engine=str(python),
        max_draft_length=LONGEST,
        max_num_seqs=SIZE,
    )
    fingerprint = identify_target(request, python).fingerprint
    store = FolderStore(root)
    store.put(fingerprint)
    lengths = tuple(range(LONGEST + 1))
    parents = Parents(
        profile=store.put(_profile(fingerprint.identity)),
        acceptance_prior=store.put(_prior(fingerprint.identity)),
    )
    version = TableVersion(
        table=table_from_dense([0, *[LENGTH] * SIZE], LONGEST),
        plan=CapturePlan(
            graph_mode="NONE",
            capture_sizes=(),
            lengths=lengths,
            max_draft_length=LONGEST,
            max_num_seqs=SIZE,
            graph_count=0,
        ),
        envelope=Envelope(allowed={str(k): ((1, SIZE),) for k in lengths}),
        fingerprint=fingerprint.identity,
        parents=parents,
        created_at=AT,
    )
    promote(store, "live", store.put(version), None, AT, "bench", "overhead", force=True)
    return root


def _profile(fingerprint: str) -> Profile:
    cells = tuple(
        Cell(
            batch_size=b,
            draft_length=k,
            samples_s=(0.05 + 0.004 * b * (k + 1),) * 20,
            scheduled_tok=float(b * (k + 1)),
            context_tok=100.0,
        )
        for b in range(1, SIZE + 1)
        for k in range(LONGEST + 1)
    )
    return Profile(
        fingerprint=fingerprint,
        plan="0" * 64,
        method="in_engine",
        step_kind="mixed",
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
