"""Finds torch's CPU build in the wheel folders that pip is configured with."""

import pathlib
from collections.abc import Mapping

from packaging.tags import Tag, compatible_tags, cpython_tags, sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from tabletune.measure.uvtool import pip_find_links


def _tags(python_version: str | None) -> set[Tag]:
    """The wheel tags that the environment's Python accepts (None: as the one running this)."""
    if python_version is None:
        return set(sys_tags())
    major, minor = (int(part) for part in python_version.split(".")[:2])
    interpreter = f"cp{major}{minor}"
    return {*cpython_tags((major, minor)), *compatible_tags((major, minor), interpreter)}


def holds_cpu_torch(
    folder: pathlib.Path, torch_version: str | None, python_version: str | None = None
) -> bool:
    """Whether a folder of wheels has a CPU build of torch for this Python and machine.

    torch_version: without the local part, as in "2.13.0"; None accepts any.
    """
    accepted = _tags(python_version)
    try:
        names = [path.name for path in folder.glob("torch-*.whl")]
    except OSError:
        return False
    for name in names:
        try:
            project, version, _, tags = parse_wheel_filename(name)
        except InvalidWheelFilename:
            continue
        fits = project == "torch" and version.local == "cpu" and bool(tags & accepted)
        if fits and torch_version in (None, version.public):
            return True
    return False


def find_links_with_torch(
    torch_version: str | None = None,
    python_version: str | None = None,
    environment: Mapping[str, str] | None = None,
    home: pathlib.Path | None = None,
) -> str | None:
    """A find-links folder of pip's configuration with a CPU torch that fits, or None."""
    for entry in pip_find_links(environment, home):
        folder = pathlib.Path(entry.removeprefix("file://"))
        if folder.is_dir() and holds_cpu_torch(folder, torch_version, python_version):
            return str(folder)
    return None


def locked_torch_version(lock: pathlib.Path) -> str | None:
    """The public version of the CPU torch that a lock pins, as in "2.13.0"."""
    for line in lock.read_text().splitlines():
        if line.startswith("torch==") and "+cpu" in line:
            return line.split("==")[1].split("+")[0]
    return None
