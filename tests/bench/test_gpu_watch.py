"""A stand-in for nvidia-smi; the real one is where a GPU is."""

import pathlib
import threading

import pytest

from bench.evaluation.gpu_watch import GpuWatch

PROGRAM = """#!/bin/sh
echo "$@" > "$0.asked"
echo "1980, 400.0, 50"
echo "1800, 700.0, 54"
touch "$0.said"
exec sleep 60
"""


def test_what_was_seen_meanwhile(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with GpuWatch("GPU-1") as watch:
        while not program.with_suffix(".said").exists():
            threading.Event().wait(0.01)
    assert watch.found == {
        "sm_clock_mhz": 1890.0,
        "power_w": 550.0,
        "temperature_c": 52.0,
        "least_sm_clock_mhz": 1800.0,
    }
    assert program.with_suffix(".asked").read_text().startswith("-i GPU-1 --query-gpu=clocks.sm,")


def test_without_a_gpu_nothing_is_seen(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with GpuWatch() as watch:
        pass
    assert watch.found == {}
