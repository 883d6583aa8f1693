"""docs/results.md from the result files."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

from bench.evaluation.claims import claims, percent, scene_text
from bench.evaluation.result_plots import plot_repair, plot_sensitivity, plot_shares
from bench.evaluation.result_set import File, ResultSet
from bench.evaluation.result_tables import (
    about,
    capture_worth_table,
    cheapest_table,
    costs,
    crossings_table,
    efforts_table,
    lengths_table,
    none,
    shares_table,
    table,
)

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
        newest = sorted(results.engine.items(), key=lambda item: _place(item[1]))
        parts += [self._comparison(*item) for item in newest] or [none()]
        parts += ["## Policies in simulation\n"]
        parts += [self._comparison(*item) for item in results.simulated.items()] or [none()]
        parts += ["## The controller on an engine\n"]
        parts += [self._controller(*item) for item in results.controller.items()] or [none()]
        parts += [self._retunes(), self._captures(), self._sensitivity(), self._not_run()]
        return "\n".join(parts)

    def _claims(self) -> str:
        rows = [
            (c.claim, c.paper, c.to_reach, c.stands, c.engine, c.simulated or "–")
            for c in claims(self._results)
        ]
        head = ("claim", "paper", "to reach", "stands", "engine", "simulated")
        note = (
            "*Stands* says whether the means found on an engine reach it, of what was run; what "
            "was not is [at the end](#not-run-and-why).\n"
        )
        return "## Claims\n\n" + table(head, rows) + "\n" + note

    def _findings(self) -> list[str]:
        file = self._results.findings
        if file is None:
            return []
        lines = [f"- **{row['title']}.** {row['finding']} ({row['file']})" for row in file["rows"]]
        return ["## What they say\n", "\n".join(lines) + "\n"]

    def _comparison(self, name: str, file: File) -> str:
        image = self._plot(name, lambda path: plot_shares(file, path))
        scenario = file["scenario"]
        lines = [f"### {scenario['name']}\n", f"{scenario['what']}. {about(name, file)}\n"]
        lines += [
            f"- Survival of *{t['name']}*: {t['survival']}; {t['source']}."
            for t in scenario["traffic"]
        ]
        planned, done = file["loads_planned"], len(file["loads"])
        if "superseded" in file:
            lines.append(f"- An earlier run: {file['superseded']}.")
        if done < planned:
            lines.append(f"- Only {done} of {planned} loads were run.")
        lines += [f"\n![shares of the best fixed length]({image})\n"]
        loads = file["loads"]
        if not file.get("simulated") and any("by_length" in load for load in loads):
            lines += ["Draft lengths, over the windows of all policies that ran only this one:\n"]
            lines += [lengths_table(file), "Policies, with prompts priced alike:\n"]
            lines += [shares_table(file, "at_equal_prompts", "best_fixed_at_equal_prompts")]
            lines += ["Policies, as measured:\n"]
        lines += [shares_table(file, "of_best_fixed", "best_fixed"), *costs(file)]
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
        note = f"{about(name, file)} {file.get('concurrency', '?')} open requests."
        return f"{note}\n\n![repair by second]({image})\n\n{table(head, rows)}"

    def _retunes(self) -> str:
        lines = ["## A retune, stage by stage\n"]
        files = self._results.retune
        for name, file in files.items():
            rows = [(stage, f"{seconds:.1f} s") for stage, seconds in file["stages_s"].items()]
            lines += [about(name, file) + "\n", table(("stage", "time"), rows)]
        return "\n".join(lines if files else [*lines, none()])

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
            lines += [about(name, file) + "\n", table(head, rows)]
        worth = self._results.capture_worth
        for name, file in worth.items():
            lines += [about(name, file) + "\n", capture_worth_table(file)]
        if not worth:
            lines.append("Throughput of one table under each of these settings: not run.\n")
        return "\n".join(lines if files or worth else [*lines[:1], none()])

    def _sensitivity(self) -> str:
        file = self._results.sensitivity
        head = "## Sensitivity (computed, not run)\n"
        if file is None:
            return f"{head}\n{none()}"
        image = self._plot("sensitivity.json", lambda path: plot_sensitivity(file, path))
        parts = [head, file["reading"] + "\n", f"![worst loss by error]({image})\n"]
        parts.append(crossings_table(file))
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
            parts += [f"{title}:\n", efforts_table(file, key)]
        parts += [
            "The cheapest measurement that keeps 97 % at the worst batch size in 95 % of draws:\n"
        ]
        parts.append(cheapest_table(file))
        return "\n".join(parts)

    def _not_run(self) -> str:
        file = self._results.not_run
        rows = [] if file is None else [(row["what"], row["why"]) for row in file["rows"]]
        text = "## Not run, and why\n\n" + (table(("what", "why"), rows) if rows else none())
        broken = self._results.broken
        return text + (f"\nFiles that could not be read: {', '.join(broken)}.\n" if broken else "")

    def _plot(self, name: str, draw: Callable[[pathlib.Path], None]) -> str:
        image = re.sub(r"[^a-z0-9_.-]+", "-", pathlib.Path(name).stem.lower()) + ".png"
        draw(self._images / image)
        return f"{self._link}/{image}"


def _place(file: File) -> tuple[bool, bool]:
    """Engines on a GPU first, runs that a newer one stands for last; else by name."""
    return "superseded" in file, file["scenario"].get("gpus", 1) == 0
