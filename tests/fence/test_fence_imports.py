"""The import rules that import-linter cannot hold: what an engine environment lacks."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

#: Imports with a blocker in place, then says which blocked module was asked for.
BLOCKER = """
import importlib, pkgutil, sys
blocked = set({blocked!r})
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ImportError(f"the fence forbids {{name}}")
sys.meta_path.insert(0, Blocker())
sys.path[:0] = {paths!r}
for name in {packages!r}:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
"""

CONTROL_ONLY = ["prefect", "mlflow", "httpx", "torch", "boto3", "vllm", "rich", "typer"]


def import_all(packages: list[str], blocked: list[str]) -> subprocess.CompletedProcess[str]:
    code = BLOCKER.format(
        blocked=blocked, packages=packages, paths=[str(ROOT), str(ROOT / "plugin")]
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("packages", "blocked"),
    [
        (["tabletune.core"], [*CONTROL_ONLY, "pydantic", "filelock", "matplotlib"]),
        (["tabletune.records"], [*CONTROL_ONLY, "filelock", "matplotlib"]),
        (["tabletune.identity"], [*CONTROL_ONLY, "filelock", "matplotlib"]),
        (["tabletune.store"], [*CONTROL_ONLY, "cryptography", "filelock", "matplotlib"]),
        (["tabletune_vllm"], [*CONTROL_ONLY, "cryptography", "filelock", "matplotlib"]),
        (["tabletune.simulate"], [*CONTROL_ONLY, "pydantic", "filelock", "matplotlib"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_package_imports_without(packages: list[str], blocked: list[str]) -> None:
    done = import_all(packages, blocked)
    assert done.returncode == 0, done.stderr


def test_the_blocker_blocks() -> None:
    done = import_all(["tabletune.measure"], ["httpx"])
    assert done.returncode != 0
    assert "the fence forbids httpx" in done.stderr


def python_files(*folders: str) -> list[pathlib.Path]:
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    files = python_files("tabletune", "plugin", "flows", "tasks")
    clashes = [p for p in files if p.stem in sys.stdlib_module_names]
    assert clashes == []


def test_only_the_seam_names_vllm() -> None:
    outside = [
        path
        for path in python_files("plugin")
        if "seam" not in path.parts
        and any(
            line.strip().startswith(("import vllm", "from vllm"))
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    ]
    assert outside == []


def test_the_plugin_uses_only_what_an_engine_may_carry() -> None:
    allowed = {"core", "records", "identity", "store", "durable_file"}
    asked = {
        line.split()[1].split(".")[1]
        for path in python_files("plugin")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip().startswith(("from tabletune.", "import tabletune."))
    }
    assert asked <= allowed
    assert "records" in asked


def test_only_tasks_import_mlflow_and_only_flows_and_tasks_import_prefect() -> None:
    for path in python_files("tabletune", "plugin", "flows"):
        text = path.read_text(encoding="utf-8")
        assert "import mlflow" not in text, path
        if "flows" not in path.parts:
            assert "import prefect" not in text, path
            assert "from prefect" not in text, path
