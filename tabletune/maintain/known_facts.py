"""What is known of engines and models, kept while the files it came from look the same.

Asking an engine environment starts a process, and identifying a model hashes tens of
megabytes. A signature of names, sizes and times of the files tells for a few microseconds
whether that must be done again.
"""

import hashlib
import json
import os
import pathlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tabletune.identity.artifact import COMMIT_PATTERN, hub_cache, identify
from tabletune.maintain.watch_state import KnownEngine, KnownModel, WatchState
from tabletune.measure.probe import ProbeError, probe_engine
from tabletune.records.fingerprint import ModelFacts

#: Files that say which driver and which boot of the machine this is.
MACHINE_FILES = (
    pathlib.Path("/proc/driver/nvidia/version"),
    pathlib.Path("/proc/sys/kernel/random/boot_id"),
)
#: Variables that change what an engine environment answers.
ENGINE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "VLLM_USE_V2_MODEL_RUNNER")

#: Of threads that look at once, one finds out and the others find it known.
_ONE_AT_A_TIME = threading.Lock()


def engine_facts(state: WatchState, python: pathlib.Path) -> dict[str, Any]:
    """What `probe_engine` says, asked again only when the environment or machine changed.

    Raises:
        ProbeError: no engine environment's Python is there, or it has no vLLM.
    """
    with _ONE_AT_A_TIME:
        signature = engine_signature(python, os.environ)
        known = state.engines.get(str(python))
        if known is not None and signature and known.signature == signature:
            return known.facts
        facts = probe_engine(python)
        if facts["vllm"] is None:
            raise ProbeError(python, "one without vLLM")
        state.engines[str(python)] = KnownEngine(signature=signature, facts=facts)
        return facts


def model_facts(state: WatchState, name: str, weights: bool) -> KnownModel:
    """A model's part of a fingerprint, identified again only when its files changed.

    Raises:
        ArtifactError: there is no such model, or it is not whole.
    """
    key = f"{name} {'with' if weights else 'without'} weights"
    with _ONE_AT_A_TIME:
        signature = model_signature(name, os.environ)
        known = state.models.get(key)
        if known is not None and signature and known.signature == signature:
            return known
        artifact = identify(name, require_weights=weights)
        found = KnownModel(signature=signature, facts=artifact.model_facts(), dtype=artifact.dtype)
        state.models[key] = found
        return found


def model_part(known: KnownModel | None) -> ModelFacts | None:
    """The facts, or None for a drafter without weights."""
    return None if known is None else known.facts


def engine_signature(python: pathlib.Path, environment: Mapping[str, str]) -> str:
    """Changes when packages of the environment, driver, machine or variables do.

    Empty where the environment's packages cannot be found: then nothing may be kept.
    """
    root = python.parent.parent
    folders = sorted(root.glob("lib/python3*/site-packages"))
    if not folders:
        return ""
    parts = [_stat(python), *map(_stat, folders), _stat(root / "pyvenv.cfg")]
    parts += [_text(path) for path in MACHINE_FILES]
    parts += [environment.get(name, "-") for name in ENGINE_VARIABLES]
    parts.append(str(len(os.sched_getaffinity(0))))
    return _digest(parts)


def model_signature(name: str, environment: Mapping[str, str]) -> str:
    """Changes when a file of the model is written, added or removed; empty where it is not
    there."""
    folder = pathlib.Path(name).expanduser()
    commit = ""
    if not folder.is_dir():
        repository = hub_cache(environment) / ("models--" + name.replace("/", "--"))
        commit = _text(repository / "refs" / "main").strip()
        if not COMMIT_PATTERN.fullmatch(commit):
            return ""
        folder = repository / "snapshots" / commit
    try:
        return _digest([str(folder), commit, *sorted(_entries(folder))])
    except OSError:
        return ""


def _entries(folder: pathlib.Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            facts = entry.stat()  # of what a link names: the hub's cache is links
            yield f"{entry.name} {facts.st_size} {facts.st_mtime_ns} {facts.st_ino}"


def _stat(path: pathlib.Path) -> str:
    try:
        facts = path.stat()
    except OSError:
        return "none"
    return f"{path} {facts.st_size} {facts.st_mtime_ns} {facts.st_ino}"


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:4096]
    except OSError:
        return ""


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
