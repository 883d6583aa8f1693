"""The result files of a folder, told apart by what they hold. Whatever is missing is missing."""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass, field
from typing import Any

File = dict[str, Any]


@dataclass
class ResultSet:
    """By kind: {file name: content}.

    engine, simulated: comparisons of policies by bench.run. controller: bench.controller_engine.
    retune: a run's stages. qualification: capture settings. capture_worth: one table under
    several of them. sensitivity, sim_controller, not_run, findings: at most one each.
    """

    engine: dict[str, File] = field(default_factory=dict[str, File])
    simulated: dict[str, File] = field(default_factory=dict[str, File])
    controller: dict[str, File] = field(default_factory=dict[str, File])
    retune: dict[str, File] = field(default_factory=dict[str, File])
    qualification: dict[str, File] = field(default_factory=dict[str, File])
    capture_worth: dict[str, File] = field(default_factory=dict[str, File])
    sensitivity: File | None = None
    sim_controller: File | None = None
    not_run: File | None = None
    findings: File | None = None
    broken: list[str] = field(default_factory=list[str])


def read_results(folder: pathlib.Path) -> ResultSet:
    """Every JSON file of the folder; files of other benchmarks are left aside, what cannot be
    read is named in `broken`."""
    found = ResultSet()
    for path in sorted(folder.glob("*.json")):
        try:
            content: Any = json.loads(path.read_text())
        except ValueError:
            found.broken.append(path.name)
            continue
        if isinstance(content, dict):
            _sort_in(found, path.name, content)
    return found


def _sort_in(found: ResultSet, name: str, content: File) -> None:
    if "loads" in content and "scenario" in content:
        kind = found.simulated if content.get("simulated") else found.engine
        if content["loads"]:
            kind[name] = content
    elif "scenes" in content:
        found.controller[name] = content
    elif "stages_s" in content:
        found.retune[name] = content
    elif "settings" in content and "table" in content:
        found.capture_worth[name] = content
    elif "settings" in content and "qualification" in str(content.get("what", "")):
        found.qualification[name] = content
    elif name == "sensitivity.json":
        found.sensitivity = content
    elif name == "sim_controller.json":
        found.sim_controller = content
    elif name == "findings.json":
        found.findings = content
    elif name == "not_run.json":
        found.not_run = content
