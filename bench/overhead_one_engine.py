"""Throughput of one real engine with the plugin at work and with it taken out, in turn.

The engine serves a closed loop without a break. In each pair of windows the plugin is in for one
and out for the other (bench/evaluation/taken_out.py), in random order.
"""

import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np

from bench.evaluation.engine import engine_path
from bench.evaluation.equal_work import Work, done_in, ratio_at_equal_work
from bench.overhead_engines import BOOT_S, Setting, interval, launch_with, promoted_in
from tabletune.measure.api import EngineAddress, EngineApi
from tabletune.measure.launch import PluginMode
from tabletune.measure.load import ClosedLoop, LoadRequest
from tabletune.measure.metrics import Counters, parse_counters
from tabletune.measure.runner import start_engine
from tabletune.records.boot_table import boot_table
from tabletune.records.vllm_format import to_vllm

SETTLE_S = 0.5
RAMP_S = 5.0
OUT, IN = "out", "in"
#: So many pairs between two times that what there is so far is kept.
KEPT_EVERY = 10


def one_engine(
    setting: Setting,
    pairs: int,
    window_s: float,
    logs: pathlib.Path | None,
    keep: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """What was done with the plugin in and out, in `pairs` pairs of windows, and the ratio: of
    tokens per second, and at equal work (bench/evaluation/equal_work.py).

    logs: a new folder for the engine's log, None to throw it away.
    keep: called now and then with the same of the pairs so far: machines are lent for minutes.
    """
    with contextlib.ExitStack() as stack:
        folder = logs or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        version, environment = promoted_in(folder, setting)
        environment |= {
            "PYTHONPATH": engine_path(os.environ.get("PYTHONPATH", "")),
            "BENCH_TAKE_OUT": "1",
        }
        log = folder / "engine.log"
        launch = launch_with(setting, version, log, PluginMode.MEASURE, environment)
        running = stack.enter_context(start_engine(launch, BOOT_S))
        print(f"booted in {running.boot_time_s:.0f} s", file=sys.stderr)
        api = EngineApi(EngineAddress(running.base_url), lost=running.is_lost)
        client = stack.enter_context(httpx.Client(base_url=running.base_url, timeout=60.0))

        def put(where: str) -> None:
            answer = client.post("/tabletune/table", json={"plugin": where})
            answer.raise_for_status()
            if not answer.json()["active"]:
                raise RuntimeError(f"the plugin is off: {api.status()}; see {log}")

        def read() -> Counters:
            return parse_counters(api.metrics_text())

        table = to_vllm(boot_table(version).table)
        requests = _requests(setting)
        model, rng = api.model().name, np.random.default_rng(0)
        windows: dict[str, list[Work]] = {IN: [], OUT: []}
        with ClosedLoop(api.address, model, requests, setting.size):
            time.sleep(RAMP_S)
            for number in range(pairs):
                for where in rng.permutation([IN, OUT]).tolist():
                    put(where)
                    time.sleep(SETTLE_S)
                    windows[where].append(done_in(read, window_s, time.perf_counter, time.sleep))
                print(f"pair {number + 1} of {pairs}", file=sys.stderr)
                if (number + 1) % KEPT_EVERY == 0:
                    keep(_figures(setting, window_s, table, windows))
            put(IN)
            time.sleep(2.0)
            status = api.status()
    controller: Any = status["controller"]
    return _figures(setting, window_s, table, windows) | {
        "plugin": {
            "active": status["active"],
            "mode": controller["mode"],
            "decisions": controller["decisions_by_kind"],
            "steps": status["steps"],
        }
    }


def _figures(
    setting: Setting, window_s: float, table: list[list[int]], windows: dict[str, list[Work]]
) -> dict[str, Any]:
    return {
        "what": (
            f"one engine, {setting.size} requests at a time, {setting.tokens} tokens each, draft "
            f"length {setting.length}; the plugin in for one window of each pair, out for the other"
        ),
        "table": table,
        "window_s": window_s,
        "windows": {side: [dataclasses.asdict(w) for w in of] for side, of in windows.items()},
        "ratio": interval(
            [a.rate_tok_s / b.rate_tok_s for a, b in zip(windows[IN], windows[OUT], strict=True)]
        ),
        "ratio_at_equal_work": ratio_at_equal_work(windows[IN], windows[OUT]),
    }


def _requests(setting: Setting) -> list[LoadRequest]:
    """Outputs of half to the whole length, so that requests do not end together."""
    shares = np.random.default_rng(1).uniform(0.5, 1.0, 64 * setting.size)
    text = "one two three four five, one two three four five, one"
    extra = {"temperature": 0, "ignore_eos": True}
    return [
        LoadRequest(f"{number}: {text}", max(8, round(setting.tokens * share)), extra)
        for number, share in enumerate(shares)
    ]
