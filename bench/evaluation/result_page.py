"""docs/results.md from the result files."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from bench.evaluation.claims import NOT_RUN, claims, percent, scene_text, with_interval
from bench.evaluation.result_plots import plot_repair, plot_sensitivity, plot_shares
from bench.evaluation.result_set import File, ResultSet

HEAD = """# Results

Made by `python -m bench.results` from the files in `bench/results`; do not edit. Columns named
*engine* are measured on a real vLLM engine, *simulated* ones are not. Intervals are 95 % bootstrap
intervals over rounds of windows that took turns on one running engine. Where a row says *dummy
weights* or *synthetic acceptance*, step times are real and what is generated means nothing. The
paper is arXiv 2610.38968, mostly on one H100. The rivals are rebuilt from what is published:
[rivals.md](rivals.md).
"""


class Page:
    """Collects the page's parts; plots go to `images`, named by their result file."""

    def __init__(self, results: ResultSet, images: pathlib.Path, link: str) -> None:
        self._results, self._images, self._link = results, images, link

    def text(self) -> str:
        """The whole page."""
        results = self._results
        parts = [HEAD, self._claims(), *self._findings()]
        parts += ["## Policies on an engine\n"]
        parts += [self._comparison(*item) for item in results.engine.items()] or [_none()]
        parts += ["## Policies in simulation\n"]
        parts += [self._comparison(*item) for item in results.simulated.items()] or [_none()]
        parts += ["## The controller on an engine\n"]
        parts += [self._controller(*item) for item in results.controller.items()] or [_none()]
        parts += [self._retunes(), self._captures(), self._sensitivity(), self._not_run()]
        return "\n".join(parts)

    def _claims(self) -> str:
        rows = [
            (c.claim, c.paper, c.to_reach, c.engine, c.simulated or "–")
            for c in claims(self._results)
        ]
        head = ("claim", "paper", "to reach", "engine", "simulated")
        return "## Claims\n\n" + table(head, rows)

    def _findings(self) -> list[str]:
        file = self._results.findings
        if file is None:
            return []
        lines = [f"- {row['finding']} ({row['file']})" for row in file["rows"]]
        return ["## What they say\n", "\n".join(lines) + "\n"]

    def _comparison(self, name: str, file: File) -> str:
        image = self._plot(name, lambda path: plot_shares(file, path))
        scenario = file["scenario"]
        lines = [f"### {scenario['name']}\n", f"{scenario['what']}. {_facts(name, file)}\n"]
        lines += [
            f"- Survival of *{t['name']}*: {t['survival']}; {t['source']}."
            for t in scenario["traffic"]
        ]
        planned, done = file["loads_planned"], len(file["loads"])
        if done < planned:
            lines.append(f"- Only {done} of {planned} loads were run.")
        lines += [f"\n![shares of the best fixed length]({image})\n"]
        loads = file["loads"]
        if not file.get("simulated") and any("by_length" in load for load in loads):
            lines += ["Draft lengths, over the windows of all policies that ran only this one:\n"]
            lines += [_lengths(file), "Policies, at equal shares of prompts:\n"]
            lines += [_shares(file, "at_equal_prompts", "best_fixed_at_equal_prompts")]
            lines += ["Policies, as measured:\n"]
        lines += [_shares(file, "of_best_fixed", "best_fixed"), *_costs(file)]
        return "\n".join(lines)

    def _controller(self, name: str, file: File) -> str:
        image = self._plot(name, lambda path: plot_repair(file, path))
        head = ("scene", "controller over tuned", "stale over tuned", "loss recovered")
        rows = [
            (
                scene["scene"],
                *(
                    scene_text(scene, key) if key in scene else "–"
                    for key in ("controller_over_tuned", "stale_over_tuned", "loss_recovered")
                ),
            )
            for scene in file["scenes"]
        ]
        note = f"{_facts(name, file)} {file.get('concurrency', '?')} open requests."
        return f"{note}\n\n![repair by second]({image})\n\n{table(head, rows)}"

    def _retunes(self) -> str:
        lines = ["## A retune, stage by stage\n"]
        files = self._results.retune
        for name, file in files.items():
            rows = [(stage, f"{seconds:.1f} s") for stage, seconds in file["stages_s"].items()]
            lines += [_facts(name, file) + "\n", table(("stage", "time"), rows)]
        return "\n".join(lines if files else [*lines, _none()])

    def _captures(self) -> str:
        lines = ["## What the capture plan is worth\n"]
        files = self._results.qualification
        for name, file in files.items():
            rows = [
                (
                    setting,
                    str(facts["graph_mode"]),
                    str(facts.get("graph_count") or facts.get("captured", "–")),
                    f"{facts.get('boot_s', facts.get('boot_s_cold', '–'))} s",
                    "yes" if facts["passed"] else f"no: {str(facts['reason'])[:160]}",
                )
                for setting, facts in file["settings"].items()
            ]
            head = ("setting", "graph mode", "graphs", "boot", "qualified")
            lines += [_facts(name, file) + "\n", table(head, rows)]
        lines.append("Throughput of one table under each of these settings: not run.\n")
        return "\n".join(lines if files else [*lines[:1], _none()])

    def _sensitivity(self) -> str:
        file = self._results.sensitivity
        head = "## Sensitivity (computed, not run)\n"
        if file is None:
            return f"{head}\n{_none()}"
        image = self._plot("sensitivity.json", lambda path: plot_sensitivity(file, path))
        parts = [head, file["reading"] + "\n", f"![worst loss by error]({image})\n"]
        parts.append(_crossings(file))
        parts.append(
            "Near ties of up to 1 % (2 % where a cell is uncertain) are left alone on purpose, so "
            "the 1 % columns are often reached without any error.\n"
        )
        parts.append("Tables that know everything, by how narrow ranges are merged:\n")
        rows = [
            (kind, rule, percent(r["worst"]), str(r["at"]), f"{100 * r['mean']:.2f} %")
            for kind in file["survivals"]
            for rule, r in file[kind]["builders"].items()
        ]
        parts.append(table(("traffic", "rule", "worst loss", "at batch size", "mean loss"), rows))
        for key, title in (
            ("grid", "Batch sizes profiled (30 samples a cell, 3700 request-steps)"),
            ("samples", "Samples a cell (all batch sizes, 3700 request-steps)"),
            ("prompts", "Request-steps counted for acceptance (all batch sizes, 30 samples)"),
        ):
            parts += [f"{title}:\n", _efforts(file, key)]
        parts += [
            "The cheapest measurement that keeps 97 % at the worst batch size in 95 % of draws:\n"
        ]
        parts.append(_cheapest(file))
        return "\n".join(parts)

    def _not_run(self) -> str:
        file = self._results.not_run
        rows = [] if file is None else [(row["what"], row["why"]) for row in file["rows"]]
        text = "## Not run, and why\n\n" + (table(("what", "why"), rows) if rows else _none())
        broken = self._results.broken
        return text + (f"\nFiles that could not be read: {', '.join(broken)}.\n" if broken else "")

    def _plot(self, name: str, draw: Callable[[pathlib.Path], None]) -> str:
        image = re.sub(r"[^a-z0-9_.-]+", "-", pathlib.Path(name).stem.lower()) + ".png"
        draw(self._images / image)
        return f"{self._link}/{image}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _shares(file: File, key: str, best: str) -> str:
    """Policies by loads."""
    loads = file["loads"]
    policies = dict.fromkeys(policy for load in loads for policy in load["policies"])
    rows = [
        (
            policy,
            *(
                with_interval(load["policies"][policy][key])
                if key in load["policies"].get(policy, {})
                else "–"
                for load in loads
            ),
        )
        for policy in policies
    ]
    head = (f"{load['load']} (best: {load.get(best, '–')})" for load in loads)
    return table(("policy", *head), rows)


def _lengths(file: File) -> str:
    """Draft lengths by loads, and what prompts cost there."""
    loads = file["loads"]
    lengths = sorted({k for load in loads for k in load.get("by_length", {})}, key=int)
    rows: list[tuple[str, ...]] = []
    for length in lengths:
        found = [load.get("by_length", {}).get(length) for load in loads]
        cells = (
            "–" if f is None else f"{with_interval(f['of_best'])}, {f['windows']} windows"
            for f in found
        )
        rows.append((f"K = {length}", *cells))
    facts = [load.get("prompt_steps") for load in loads]
    extra = ("–" if f is None else f"+{f['extra_ms']:.1f} ms" for f in facts)
    rows.append(("a step with a prompt", *extra))
    return table(("", *(load["load"] for load in loads)), rows)


def _none() -> str:
    return f"*{NOT_RUN}*\n"


def _facts(name: str, file: File) -> str:
    parts = [f"File `{name}`"]
    if not file.get("simulated"):
        parts.append(_machine(file.get("machine", {})))
        parts.append(f"synthetic: {file.get('synthetic', 'not said')}")
    parts.append(f"of {file.get('measured', 'an unknown day')}")
    return "; ".join(part for part in parts if part) + "."


def _machine(machine: File) -> str:
    if "device" in machine:
        device, engine = machine["device"], machine["engine"]
        version = f"{engine['distribution']} {engine['version']}, torch {engine['torch']}"
        return f"{device['name']}, {version}"
    gpus = machine.get("gpus") or []
    names = ", ".join(sorted({str(g.get("name")) for g in gpus if isinstance(g, dict)}))
    engine = machine.get("vllm")
    version = engine.get("version", engine) if isinstance(engine, dict) else engine
    count = f"{len(gpus)} × " if len(gpus) > 1 else ""
    return f"{count}{names or 'CPU'}, vLLM {version}, torch {machine.get('torch_version', '?')}"


def _costs(file: File) -> list[str]:
    costs = {k: v for k, v in file.get("policy_cost", {}).items() if isinstance(v, dict)}
    if not costs:
        return []
    text = "; ".join(
        f"{name} {cost['choose_us']:.0f} + {cost['observe_us']:.0f} µs"
        for name, cost in costs.items()
    )
    return [f"Time to choose and to learn, per step on the engine's thread, in Python: {text}.\n"]


def _crossings(file: File) -> str:
    def errors(pair: Sequence[float | None]) -> str:
        low, high = ("beyond" if e is None else f"{100 * e:+.0f} %" for e in pair)
        return f"{low} / {high}"

    limits = [f"{limit:g}" for limit in file["limits"]]
    names = {
        "survival": "conditional acceptance",
        "drafting_time": "time added by drafting",
        "cell_noise": "each cell at random (standard deviation, only up)",
    }
    rows = [
        (kind, title, *(errors(file[kind][key]["crossed"][limit]) for limit in limits))
        for kind in file["survivals"]
        for key, title in names.items()
    ]
    return table(("traffic", "wrong", *(f"loses {100 * float(x):g} %" for x in limits)), rows)


def _efforts(file: File, key: str) -> str:
    counts = {"grid": "batch_sizes", "samples": "samples", "prompts": "request_steps"}
    kinds = list(file["survivals"])
    first = file[kinds[0]][key]
    rows: Iterator[tuple[str, ...]] = (
        (
            str(row[counts[key]]),
            *(
                f"{percent(file[k][key][i]['worst'])} / {percent(file[k][key][i]['worst_p95'])}"
                for k in kinds
            ),
        )
        for i, row in enumerate(first)
    )
    return table(
        (counts[key].replace("_", " "), *(f"{k}: worst loss, mean / p95" for k in kinds)), rows
    )


def _cheapest(file: File) -> str:
    rows: list[tuple[str, ...]] = []
    for kind in file["survivals"]:
        best = file[kind]["cheapest"]
        if best is None:
            rows.append((kind, "none of those tried", "–", "–", "–"))
        else:
            values = (best["batch_sizes"], best["samples"], best["request_steps"])
            rows.append((kind, *map(str, values), f"{best['step_time_s']:.1f} s"))
    head = ("traffic", "batch sizes", "samples a cell", "request-steps", "pure step time")
    return table(head, rows)
