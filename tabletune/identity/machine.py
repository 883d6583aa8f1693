"""What the running process knows of its engine's packages and device, without touching either.

The same functions answer in the control environment, where a fingerprint is made.
"""

import contextlib
import os
from dataclasses import dataclass

from tabletune.identity.engine_probe import (
    NvmlError,
    cpu_facts,
    nvml_gpus,
    version_of,
    visible,
    vllm_facts,
)


@dataclass(frozen=True)
class Machine:
    """Facts as `records.fingerprint` names them; None where they cannot be found out."""

    distribution: str | None = None
    torch: str | None = None
    device_name: str | None = None
    capability: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    driver: str | None = None


def this_machine(platform: str) -> Machine:
    """The facts of this process's environment; `platform` is `cpu` or `cuda`.

    Starts no other program and makes no CUDA context: versions are read from the packages'
    metadata, GPUs from the management library that the driver brings.
    """
    vllm = vllm_facts()
    distribution = None if vllm is None else vllm["distribution"]
    torch = version_of("torch")
    if platform == "cpu":
        cpu = cpu_facts()
        return Machine(
            distribution=distribution,
            torch=torch,
            device_name=str(cpu["model"]),
            capability=",".join(cpu["flags"]),
            cores=usable_cores(),
        )
    try:
        driver, gpus = nvml_gpus()
    except (OSError, AttributeError, NvmlError):
        return Machine(distribution=distribution, torch=torch)
    seen = visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not seen:
        return Machine(distribution=distribution, torch=torch, driver=driver)
    return Machine(
        distribution=distribution,
        torch=torch,
        device_name=str(seen[0]["name"]),
        capability=str(seen[0]["capability"]),
        memory_bytes=int(seen[0]["memory_bytes"]),
        driver=driver,
    )


def usable_cores() -> int:
    """The cores that this process was given.

    A CPU engine binds its own threads to some of them, so the parent is asked too.
    """
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError):
        cores = max(cores, len(os.sched_getaffinity(os.getppid())))
    return cores
