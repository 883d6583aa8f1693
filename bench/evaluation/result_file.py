"""The result file of a scenario: made from its cells, after each load and at the end."""

from __future__ import annotations

import datetime
import json
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.command_line import placeless
from bench.evaluation.arms import Arm
from bench.evaluation.cells import Cells
from bench.evaluation.compare import Bout
from bench.evaluation.loads import is_open
from bench.evaluation.scenario import Scenario
from bench.evaluation.shares import summarise_load
from bench.machine_facts import machine_facts
from tabletune.records.table import table_from_dense
from tabletune.records.vllm_format import to_vllm

READING = (
    "Policies took turns on one running engine in short windows, in a new random order each "
    "round. of_best_fixed: [mean, low, high], mean score over that of the fixed length that was "
    "best at this load (found afterwards, so chance favours it), with a 95 % bootstrap interval "
    "over rounds; few rounds give rough intervals. Score: output tokens per second of the "
    "engine's own clock; where acceptance is synthetic, accepted guesses are replaced by those "
    "expected of the guesses that were verified, so that luck does not count. Under arrivals "
    "that do not wait the score is tokens per request-second. rate_tok_s is what was put out; "
    "decode_of_best_fixed counts only steps without a prompt. at_equal_prompts: the score as it "
    "would be with the load's mean share of steps that hold a prompt, each at its mean extra time "
    "over all windows of its draft length (bench/evaluation/prompts_apart.py): what a window has "
    "of them, and how long each takes, is mostly luck. "
    "by_length: the same, of all windows that ran one draft length only. policy_cost: time on "
    "the engine's thread per decision, in Python; nobody's figures were corrected for it."
)


@dataclass
class Result:
    """What is known so far. table_notes: of the tuned table, what corrected it among them.
    validated: what a validation on the same engine said of it."""

    scenario: Scenario
    cells: Cells
    command: str
    engine: dict[str, Any]
    out: pathlib.Path
    work: pathlib.Path
    boot_time_s: float = 0.0
    controller_left_out: str | None = None
    table_notes: tuple[str, ...] = ()
    validated: dict[str, object] | None = None
    prompt_tok: float = 0.0
    policies_cost: dict[str, object] = field(default_factory=dict[str, object])
    controller: dict[str, Any] = field(default_factory=dict[str, Any])
    bouts: list[tuple[Bout, list[Arm]]] = field(default_factory=list[tuple[Bout, list[Arm]]])

    def note_bout(self, bout: Bout, compared: Sequence[Arm]) -> None:
        """From now on the bout is part of the result."""
        self.bouts.append((bout, list(compared)))

    def loads(self) -> list[dict[str, Any]]:
        """Every bout that has a whole round."""
        found: list[dict[str, Any]] = []
        for bout, compared in self.bouts:
            names = [arm.name for arm in compared]
            rounds = self.cells.whole_rounds(bout.label, self.scenario.rounds, names)
            if not rounds:
                continue
            figures = summarise_load(rounds, names, is_open(bout.load))
            tables = {a.name: _ranges(a) for a in compared if a.how == "table"}
            traffic = None if bout.traffic is None else bout.traffic.model_dump()
            found.append({"load": bout.label, "traffic": traffic, **figures, "tables": tables})
        return found

    def line(self, label: str) -> str:
        """A load's outcome in a line."""
        load = next((one for one in self.loads() if one["load"] == label), None)
        if load is None:
            return f"{label}: no whole round"
        shares = {name: p["of_best_fixed"][0] for name, p in load["policies"].items()}
        text = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
        return f"{label}: of {load['best_fixed']}: {text}"

    def to_json(self) -> dict[str, Any]:
        """The file's content."""
        scenario = self.scenario
        synthetic = "dummy weights, synthetic acceptance" if scenario.synthetic else "nothing"
        return {
            "what": scenario.what,
            "reading": READING,
            "command": self.command,
            "measured": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine_facts(self.engine),
            "synthetic": synthetic,
            "scenario": scenario.model_dump(mode="json"),
            "prompt_tok": self.prompt_tok,
            "boot_time_s": round(self.boot_time_s, 1),
            "table_notes": list(self.table_notes),
            "validated": self.validated,
            "loads": self.loads(),
            "loads_planned": len(scenario.loads) * max(1, len(scenario.traffic)),
            "policy_cost": self.policies_cost,
            "controller": self.controller,
            "controller_left_out": self.controller_left_out,
        }


def write_result(result: Result) -> None:
    """Write the file, whole or not at all."""
    result.out.parent.mkdir(parents=True, exist_ok=True)
    writing = result.out.with_suffix(".writing")
    text = json.dumps(result.to_json(), indent=1, default=str) + "\n"
    writing.write_text(placeless(text, result.work))
    writing.replace(result.out)


def _ranges(arm: Arm) -> list[list[int]]:
    return to_vllm(table_from_dense(list(arm.lengths), max(1, *arm.lengths)))
