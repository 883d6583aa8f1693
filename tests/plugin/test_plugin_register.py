"""Registering is idempotent, light and inert unless asked."""

import subprocess
import sys
from pathlib import Path

import pytest

from tabletune_vllm.register import active_settings, when_imported

PLUGIN = Path(__file__).parents[2] / "plugin"


def _run(code: str, *environ: str) -> str:
    command = ["env", "-i", f"PYTHONPATH={PLUGIN}", *environ, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


REGISTER = """
import sys
from tabletune_vllm.register import register
before = list(sys.meta_path)
register(); register()
print(len(sys.meta_path) - len(before), "numpy" in sys.modules, "vllm" in sys.modules)
"""


def test_nothing_happens_without_variables() -> None:
    assert _run(REGISTER).split() == ["0", "False", "False"]


def test_measure_only_waits_for_vllms_engine_core() -> None:
    assert _run(REGISTER, "TABLETUNE_MEASURE=1").split() == ["1", "True", "False"]


def test_bad_variables_stay_off() -> None:
    assert _run(REGISTER, "TABLETUNE_MEASURE=1", "TABLETUNE_TYPO=1").split()[0] == "0"
    assert active_settings({"TABLETUNE_CHANNEL": "live"}) is None


def test_the_action_runs_once_right_after_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "watched_module.py").write_text("ready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[bool] = []
    when_imported("watched_module", lambda: seen.append(sys.modules["watched_module"].ready))
    assert seen == []
    __import__("watched_module")
    __import__("watched_module")
    assert seen == [True]
    when_imported("watched_module", lambda: seen.append(True))
    assert seen == [True, True]
    del sys.modules["watched_module"]
