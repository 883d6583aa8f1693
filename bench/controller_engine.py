"""The controller on a real engine: from deliberately bad tables, and through a change of traffic.

    python -m bench.controller_engine --engine PYTHON --model FOLDER --method METHOD \
        --work FOLDER --out bench/results/FILE.json [--drafter FOLDER] [--concurrency 64] \
        [--survival 0.9,0.8,0.7,0.6 …] [--misprofile 0.4] [--speculative JSON] [-- ENGINE ARGS]

WORK is the folder of an earlier `tabletune profile` or `run` of the same deployment: its
profile, acceptance and plan are used, nothing is profiled here. One boot: the engine follows a
folder store and adapts. Then, under a closed loop:

1. for each bad table (one length for every batch size: --flat, or the shortest and the longest):
   it is promoted by force, and throughput is recorded second by second while the controller
   repairs it;
2. with --misprofile E, a version is promoted whose profile is wrong: half of its cells, at
   random, by a factor of 1-E..1+E. Of 100 such profiles it is the one whose table should lose
   most at the batch sizes around half the concurrency, by the profile as measured;
3. with --survival, for each of the given survivals: synthetic acceptance is switched while
   serving (bench/synthetic_acceptance.py), and throughput is recorded in the same way;
4. after each, the table as it was (stale), the table built for this very traffic (tuned) and
   the controller take turns in short windows; ratios with bootstrap intervals come from these.

The tuned table is built from the same profile and, with synthetic acceptance, its true
survival; without, from the measured prior.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import sys
import time
from types import MappingProxyType
from typing import Any

import httpx
import numpy as np

from bench.command_line import placeless, told_of_this
from bench.evaluation.window import window_of
from bench.machine_facts import machine_facts
from tabletune.commands.console import TerminalProgress
from tabletune.measure.api import EngineAddress, EngineApi
from tabletune.measure.clock import SystemClock
from tabletune.measure.launch import EngineLaunch, PluginMode
from tabletune.measure.load import ClosedLoop, LoadRequest
from tabletune.measure.probe import probe_engine
from tabletune.measure.progress import Progress
from tabletune.measure.runner import start_engine
from tabletune.measure.steps import StepReader, concatenate
from tabletune.pipeline.build import Evidence, build_version
from tabletune.pipeline.engine_config import serving_arguments
from tabletune.pipeline.identify import identify_target
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.requests import natural_requests, sample_prompts, step_time_requests
from tabletune.pipeline.serve import evidence_losses
from tabletune.pipeline.session import LiveEngine
from tabletune.pipeline.workspace import Workspace
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.boot_table import boot_table
from tabletune.records.plan import CapturePlan
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile
from tabletune.records.table import Range, Table, TableVersion
from tabletune.records.vllm_format import to_vllm
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import promote

CHANNEL = "bench"


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of each phase."""

    settle_s: float
    window_s: float
    rounds: int


class Bench:
    """One engine under one closed loop, and what is done to it."""

    def __init__(
        self,
        live: LiveEngine,
        store: FolderStore,
        evidence: Evidence,
        request: RunRequest,
        times: Times,
        progress: Progress,
        concurrency: int,
    ) -> None:
        self.live, self.store, self.evidence = live, store, evidence
        self.request, self.times, self.progress = request, times, progress
        self.concurrency = concurrency
        self.clock = SystemClock()
        self.rng = np.random.default_rng(0)

    def tuned(self, survival: list[float] | None) -> TableVersion:
        """The table built for a known survival, or for the measured prior."""
        evidence = self.evidence
        if survival is not None:
            evidence = dataclasses.replace(evidence, prior=prior_of(evidence.prior, survival))
            self.store.put(evidence.prior)  # the controller adapts only with its evidence
        return build_version(self.request, evidence, evidence.padded_tokens()).version

    def misprofiled(self, error: float, tuned: TableVersion) -> TableVersion:
        """The version of a wrong profile: of 100, the one whose table should lose most."""
        sizes = range(max(1, self.concurrency // 4), self.concurrency + 1)
        truth = build_version(self.request, self.evidence, self.evidence.padded_tokens())
        goodput, lengths = truth.predicted_goodput_tok_s, tuned.table.dense()
        worst, found = np.inf, None
        for seed in range(100):
            wrong = wrong_profile(self.evidence.profile, error, np.random.default_rng(seed))
            evidence = dataclasses.replace(self.evidence, profile=wrong)
            version = build_version(self.request, evidence, evidence.padded_tokens()).version
            believed = version.table.dense()
            shares = [goodput[b - 1, believed[b]] / goodput[b - 1, lengths[b]] for b in sizes]
            if np.mean(shares) < worst:
                worst, found = float(np.mean(shares)), (version, wrong)
        if found is None:
            raise RuntimeError("no wrong profile gave a table that the true one covers")
        self.store.put(found[1])
        return found[0]

    def promote(self, version: TableVersion) -> None:
        """Promote by force, and wait until the engine follows."""
        self.store.put(version)
        now = self.clock.utc()
        promote(
            self.store, CHANNEL, version.content_hash, None, now, "bench", "bad table", force=True
        )
        deadline_s = time.monotonic() + 30
        while self.controller().get("version") != version.content_hash:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"not followed within 30 s: {self.controller()}")
            time.sleep(0.1)
        notes = self.controller().get("notes")
        if notes:
            raise RuntimeError(f"the engine does not adapt: {notes}")

    def controller(self) -> dict[str, Any]:
        """What the plugin says of its controller."""
        status: dict[str, Any] = self.live.api.status()
        found = status.get("controller")
        return found if isinstance(found, dict) else status

    def rates(self, seconds: float) -> list[float]:
        """Output tokens per second, for each of the coming seconds."""
        reader = StepReader(self.live.api)
        batches = []
        for _ in range(max(1, round(seconds))):
            time.sleep(1.0)
            batches.append(reader.read_new())
        steps = concatenate(batches)
        if len(steps) < 2:
            raise RuntimeError(f"no steps within {seconds} s: see the engine's log")
        elapsed_s = steps.time_s - steps.time_s[0]
        whole = int(elapsed_s[-1])  # what is left over is no whole second
        if whole < 1:
            return [float(steps.output_tok[1:].sum() / elapsed_s[-1])]
        second = elapsed_s.astype(int)
        tokens = np.bincount(second[1:], weights=steps.output_tok[1:], minlength=whole + 1)
        return [float(v) for v in tokens[:whole]]

    def window(self, seconds: float) -> tuple[float, float]:
        """Output tokens per second over so many seconds: of all steps, and of those alone that
        neither hold a prefill nor come right before one. Read once, at the end."""
        reader = StepReader(self.live.api)
        reader.read_new()
        time.sleep(seconds)
        found = window_of("what is in force", reader.read_new(), None)
        return found.rate_tok_s, found.decode_tok_s or found.rate_tok_s

    def by_hand(self, table: Table | None) -> None:
        """Put a table in force by hand (the controller pauses), or let the controller go on."""
        self.live.api.swap_table(None if table is None else to_vllm(table))

    def compare(self, stale: Table, tuned: Table) -> dict[str, Any]:
        """Windows in turn: stale, tuned, controller; each after a second that does not count."""
        windows: dict[str, list[float]] = {"stale": [], "tuned": [], "controller": []}
        decoding: dict[str, list[float]] = {"stale": [], "tuned": [], "controller": []}
        tables = {"stale": stale, "tuned": tuned, "controller": None}
        for _ in range(self.times.rounds):
            for name in self.rng.permutation(list(tables)).tolist():
                self.by_hand(tables[name])
                time.sleep(1.0)
                everything, calm = self.window(self.times.window_s)
                windows[name].append(everything)
                decoding[name].append(calm)
        self.by_hand(None)
        return {
            "windows_tok_s": windows,
            **ratios(windows, self.rng),
            "decoding_tok_s": decoding,
            "decoding_only": ratios(decoding, self.rng),
        }

    def scene(self, name: str, stale: TableVersion, tuned: TableVersion) -> dict[str, Any]:
        """Record the repair, then compare."""
        self.progress.start(name)
        seconds = self.rates(self.times.settle_s)
        decided = self.controller()
        found = self.compare(stale.table, tuned.table)
        reference = float(np.mean(found["windows_tok_s"]["tuned"]))
        self.progress.say(f"{name}: {found['controller_over_tuned']}")
        return {
            "scene": name,
            "stale": to_vllm(stale.table),
            "tuned": to_vllm(tuned.table),
            "share_of_tuned_by_second": [round(v / reference, 4) for v in seconds],
            **found,
            "controller": decided,
        }


def prior_of(prior: AcceptancePrior, survival: list[float]) -> AcceptancePrior:
    """A prior that says exactly this survival."""
    steps = 1_000_000
    counts = prior.counts.model_copy(
        update={
            "drafted_through": (steps,) * len(survival),
            "accepted_through": tuple(round(steps * s) for s in survival),
            "request_steps": steps,
        }
    )
    return prior.model_copy(update={"counts": counts})


def wrong_profile(profile: Profile, error: float, rng: np.random.Generator) -> Profile:
    """Half of the cells, at random, are off by a factor uniform in 1-error..1+error."""
    cells = tuple(
        cell.model_copy(update={"samples_s": tuple(s * factor for s in cell.samples_s)})
        for cell in profile.cells
        for factor in [rng.uniform(1 - error, 1 + error) if rng.random() < 0.5 else 1.0]
    )
    return profile.model_copy(update={"cells": cells})


def ratios(windows: dict[str, list[float]], rng: np.random.Generator) -> dict[str, Any]:
    """Shares with 95 % bootstrap intervals over rounds."""
    stale, tuned, ours = (np.array(windows[n]) for n in ("stale", "tuned", "controller"))

    def interval(share: Any) -> list[float]:
        picks = rng.integers(0, len(tuned), (2000, len(tuned)))
        values = [share(stale[p].mean(), tuned[p].mean(), ours[p].mean()) for p in picks]
        middle = share(stale.mean(), tuned.mean(), ours.mean())
        low, high = np.percentile(values, [2.5, 97.5])
        return [round(float(v), 4) for v in (middle, low, high)]

    found = {"controller_over_tuned": interval(lambda s, t, c: c / t)}
    found["stale_over_tuned"] = interval(lambda s, t, c: s / t)
    if stale.mean() < 0.97 * tuned.mean():  # otherwise there is no loss to speak of
        found["loss_recovered"] = interval(lambda s, t, c: (c - s) / (t - s))
    return found


def flat(version: TableVersion, length: int) -> TableVersion:
    """A bad table: one length at every batch size."""
    one = Range(first=1, last=version.table.max_num_seqs, draft_length=length)
    table = version.table.model_copy(update={"ranges": (one,), "notes": ()})
    return version.model_copy(update={"table": table})


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", type=pathlib.Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--drafter", default="")
    parser.add_argument("--method", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--max-num-seqs", type=int, default=128)
    parser.add_argument("--max-draft-length", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--survival", action="append", default=[])
    parser.add_argument("--flat", type=int, action="append", default=[])
    parser.add_argument("--misprofile", type=float, default=0.0)
    parser.add_argument("--speculative", default="{}")
    parser.add_argument("--settle-s", type=float, default=20)
    parser.add_argument("--window-s", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("engine_args", nargs="*")
    return parser


def main() -> None:
    options = parser().parse_args()
    request = RunRequest(
        model=options.model,
        method=options.method,
        engine=str(options.engine),
        drafter=options.drafter or None,
        max_draft_length=options.max_draft_length,
        max_num_seqs=options.max_num_seqs,
        engine_args=tuple(options.engine_args),
        speculative_extra=json.loads(options.speculative),
    )
    run(request, options)


def run(request: RunRequest, options: argparse.Namespace) -> None:
    """Boot, measure, write the result after each scene."""
    target = identify_target(request, options.engine)
    workspace, identity = Workspace(options.work), target.fingerprint.identity
    records = [
        workspace.load(identity, kind)
        for kind in (CapturePlan, Qualification, Profile, AcceptancePrior)
    ]
    if None in records:
        sys.exit(f"{options.work} holds no profile of {identity[:12]}; run tabletune profile first")
    evidence = Evidence(target.fingerprint, *records)  # type: ignore[arg-type]
    store = FolderStore(workspace.root / "bench-store")
    for record in (evidence.fingerprint, *records):
        store.put(record)  # type: ignore[arg-type]
    switching = bool(options.survival)
    # As somebody would serve: the boot table is the tuned one, naming every length.
    first = build_version(request, evidence, evidence.padded_tokens()).version
    booted = boot_table(first, evidence_losses(first, evidence)).table
    arguments = serving_arguments(request, first, booted)
    environment = {
        "TABLETUNE_SOURCE": store.url,
        "TABLETUNE_CHANNEL": CHANNEL,
        "TABLETUNE_MODE": "adapt",
        "TABLETUNE_POLL_S": "1",
        "TABLETUNE_TRACE": str(workspace.root / "decisions.jsonl"),
    }
    if switching:
        arguments += ["--worker-extension-cls", "bench.synthetic_acceptance.SyntheticAcceptance"]
        environment["VLLM_SERVER_DEV_MODE"] = "1"
    if target.platform == "cpu":
        environment["VLLM_CPU_KVCACHE_SPACE"] = "2"
    launch = EngineLaunch(
        python=target.python,
        model=request.model,
        log_path=workspace.logs / "controller.log",
        arguments=tuple(arguments),
        environment=MappingProxyType(environment),
        plugin=PluginMode.MEASURE,
    )
    with TerminalProgress() as progress:
        progress.start("boot")
        engine = start_engine(launch, 1200.0, lambda b: progress.advance(b.waited_s, b.phase))
        try:
            api = EngineApi(EngineAddress(engine.base_url))
            live = LiveEngine(engine, api, api.model())
            on_engine(live, store, evidence, request, options, progress)
        finally:
            engine.stop()


def on_engine(
    live: LiveEngine,
    store: FolderStore,
    evidence: Evidence,
    request: RunRequest,
    options: argparse.Namespace,
    progress: Progress,
) -> None:
    """Every scene on an engine that runs, follows the store's channel `bench`, and adapts."""
    found: dict[str, Any] = {
        "what": "the controller on a real engine, from bad tables and through changed traffic",
        "command": told_of_this(),
        "machine": machine_facts(probe_engine(options.engine)),
        "synthetic": "dummy weights and synthetic acceptance" if request.synthetic else "nothing",
        "concurrency": options.concurrency,
        "scenes": [],
    }
    times = Times(options.settle_s, options.window_s, options.rounds)
    bench = Bench(live, store, evidence, request, times, progress, options.concurrency)
    prompts = sample_prompts(request)
    if request.step_kind == "mixed":
        requests = natural_requests(prompts, live, progress)
    else:
        requests, _ = step_time_requests(request, prompts, live, progress)
    requests = spread(requests, options.concurrency)
    with ClosedLoop(live.api.address, live.model.name, requests, options.concurrency):
        time.sleep(3)
        scenes(bench, found, options)


def spread(requests: list[LoadRequest], concurrency: int) -> list[LoadRequest]:
    """Outputs of a quarter to the whole of their length, so that requests do not end together."""
    shares = np.random.default_rng(0).uniform(0.25, 1.0, max(len(requests), 4 * concurrency))
    return [
        dataclasses.replace(r, max_tokens=max(8, round(r.max_tokens * share)))
        for r, share in zip(itertools.cycle(requests), shares, strict=False)
    ]


def scenes(bench: Bench, found: dict[str, Any], options: argparse.Namespace) -> None:
    """Every scene, the result written after each."""
    rates = bench.request.speculative_extra.get("synthetic_acceptance_rates")
    tuned = bench.tuned(rates if isinstance(rates, list) else None)
    lengths = bench.evidence.plan.lengths
    for length in options.flat or (max(lengths), min(lengths)):
        bad = flat(tuned, length)
        bench.promote(bad)
        keep(found, bench.scene(f"promoted: draft length {length} everywhere", bad, tuned), options)
    if options.misprofile:
        wrong = bench.misprofiled(options.misprofile, tuned)
        bench.promote(wrong)
        name = f"step times wrong by up to {options.misprofile:.0%}"
        keep(found, bench.scene(name, wrong, tuned), options)
    if options.survival:
        bench.promote(tuned)
        time.sleep(5)
    stale = tuned
    for text in options.survival:
        survival = [float(v) for v in text.split(",")]
        switch_survival(bench.live, survival)
        tuned = bench.tuned(survival)
        keep(found, bench.scene(f"survival becomes {text}", stale, tuned), options)
        stale = tuned


def switch_survival(live: LiveEngine, survival: list[float]) -> None:
    """Change synthetic acceptance in the running engine."""
    body = {"method": "set_synthetic_survival", "args": [survival]}
    answer = httpx.post(f"{live.api.address.base_url}/collective_rpc", json=body, timeout=30)
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise RuntimeError(
            "expected an engine whose acceptance can be changed while it serves, found one that "
            "was booted without VLLM_SERVER_DEV_MODE=1; name the switches before it boots"
        )
    answer.raise_for_status()


def keep(found: dict[str, Any], scene: dict[str, Any], options: argparse.Namespace) -> None:
    """Add a scene and write the file."""
    found["scenes"].append(scene)
    options.out.write_text(placeless(json.dumps(found, indent=1, default=float), options.work))


if __name__ == "__main__":
    main()
