"""A GPU's clock and power while something runs on it, as nvidia-smi tells them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from typing import Self

import numpy as np

#: nvidia-smi's names, and what they are called here.
FIELDS = {"clocks.sm": "sm_clock_mhz", "power.draw": "power_w", "temperature.gpu": "temperature_c"}
EVERY_MS = 100


class GpuWatch:
    """Watches one GPU for as long as the context is open; nothing where there is no nvidia-smi.

    Args:
        gpu: its UUID or number.

    Attributes:
        found: the mean of each field, and the lowest clock; empty before the end.
    """

    def __init__(self, gpu: str = "0") -> None:
        self._gpu = gpu
        self._process: subprocess.Popen[str] | None = None
        self.found: dict[str, float] = {}

    def __enter__(self) -> Self:
        program = shutil.which("nvidia-smi")
        if program is not None:
            query = f"--query-gpu={','.join(FIELDS)}"
            shape = "--format=csv,noheader,nounits"
            self._process = subprocess.Popen(
                [program, "-i", self._gpu, query, shape, "-lms", str(EVERY_MS)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            said, _ = self._process.communicate()
            self.found = watched(said.splitlines())


def watched(lines: Sequence[str]) -> dict[str, float]:
    """The means of what nvidia-smi printed, as far as it is numbers.

    >>> watched(["1980, 400.5, 50", "1800, 699.5, 52", "[N/A], [N/A], [N/A]", "19"])
    {'sm_clock_mhz': 1890.0, 'power_w': 550.0, 'temperature_c': 51.0, 'least_sm_clock_mhz': 1800.0}
    """
    rows: list[list[float]] = []
    for line in lines:
        try:
            row = [float(word) for word in line.split(",")]
        except ValueError:
            continue
        if len(row) == len(FIELDS):
            rows.append(row)
    if not rows:
        return {}
    columns = np.asarray(rows)
    means = {
        name: round(float(mean), 1)
        for name, mean in zip(FIELDS.values(), columns.mean(axis=0), strict=True)
    }
    return means | {"least_sm_clock_mhz": float(columns[:, 0].min())}
