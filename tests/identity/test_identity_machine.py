"""The facts that a process finds out about itself are those that a fingerprint is made of."""

import json
import os
import pathlib
import subprocess

import pytest

from tabletune.identity import machine
from tabletune.identity.engine_probe import NvmlError, cpu_facts, facts
from tabletune.identity.machine import Machine, this_machine, usable_cores

ROOT = pathlib.Path(__file__).resolve().parents[2]

ASK = """
import dataclasses, json, sys
sys.path.insert(0, {root!r})
from tabletune.identity.machine import this_machine
print(json.dumps(dataclasses.asdict(this_machine("cpu"))))
"""


def test_the_processor_is_named_as_the_probe_names_it() -> None:
    found, probed = this_machine("cpu"), facts()["cpu"]
    assert (found.device_name, found.capability) == (probed["model"], ",".join(probed["flags"]))
    assert found.cores is not None
    assert found.cores >= probed["usable_cores"]


def test_cores_are_counted_although_the_engine_binds_its_threads() -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("there is one core only")
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cpu_facts()["usable_cores"] == 1
        assert usable_cores() == len(os.sched_getaffinity(os.getppid()))
    finally:
        os.sched_setaffinity(0, before)


def test_gpus_come_from_the_management_library(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [
        {"index": i, "name": name, "uuid": f"GPU-{i}", "memory_bytes": 80, "capability": "9.0"}
        for i, name in enumerate(("first", "second"))
    ]
    monkeypatch.setattr(machine, "nvml_gpus", lambda: ("580.1", gpus))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found = this_machine("cuda")
    assert (found.device_name, found.capability, found.driver) == ("second", "9.0", "580.1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert this_machine("cuda").device_name is None

    def no_driver() -> tuple[str, list[dict[str, object]]]:
        raise NvmlError("nvmlInit_v2 gave 9")

    monkeypatch.setattr(machine, "nvml_gpus", no_driver)
    unknown = this_machine("cuda")
    assert unknown == Machine(distribution=unknown.distribution, torch=unknown.torch)


@pytest.mark.engine
def test_an_engine_environment_agrees_with_its_probe(engine_python: pathlib.Path) -> None:
    from tabletune.measure.probe import probe_engine

    answer = subprocess.run(
        [str(engine_python), "-c", ASK.format(root=str(ROOT))],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found, probed = json.loads(answer.stdout), probe_engine(engine_python)
    assert found["distribution"] == probed["vllm"]["distribution"]
    assert found["torch"] == probed["torch_version"]
    assert found["device_name"] == probed["cpu"]["model"]
