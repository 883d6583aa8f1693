"""Finds its way into an engine: see bench/engine_side/sitecustomize.py. Imports next to nothing,
for it runs in every process of vLLM's; policies_in_runtime.py is imported where a scheduler is."""

from __future__ import annotations

import os
import pathlib

from tabletune_vllm.register import when_imported

VARIABLE = "BENCH_POLICIES"


def install_when_imported() -> None:
    """Install the policies of BENCH_POLICIES in this process, if it ever makes a runtime."""
    path = pathlib.Path(os.environ[VARIABLE])

    def installed() -> None:
        from bench.evaluation.policies_in_runtime import install

        install(path)

    when_imported("tabletune_vllm.runtime", installed)
