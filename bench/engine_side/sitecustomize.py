"""Brings the benchmark's policies into an engine: run by every Python that has this folder on
its PYTHONPATH, and does nothing without BENCH_POLICIES or BENCH_TAKE_OUT.

Not a plugin of vLLM's: the names in VLLM_PLUGINS are part of the key of its compile cache
(vllm/envs.py, compile_factors), so one more name would compile everything anew.
"""

import os

if os.environ.get("BENCH_POLICIES"):
    from bench.evaluation.in_engine import install_when_imported

    install_when_imported()

if os.environ.get("BENCH_TAKE_OUT"):
    from bench.evaluation import taken_out

    taken_out.install_when_imported()
