"""The only folder that names vLLM's internals: probes them, hooks them, reads them.

Names and signatures as in vLLM 0.31 to 0.33. Whatever differs turns the plugin off before
anything is hooked.
"""

import importlib
import importlib.metadata

from tabletune_vllm.errors import PluginError
from tabletune_vllm.logs import warn_once
from tabletune_vllm.seam.core import wrap_core
from tabletune_vllm.seam.hooks import wrap_scheduler
from tabletune_vllm.seam.probe import probe, supported_version
from tabletune_vllm.seam.utilities import add_utilities
from tabletune_vllm.settings import Settings

# Imported by every process that builds an engine core, and by no worker of a larger engine.
TRIGGER_MODULE = "vllm.v1.engine.core"


def install(settings: Settings) -> None:
    """Hook this process's vLLM. Never raises: what goes wrong is warned of and reported."""
    try:
        module = importlib.import_module(TRIGGER_MODULE)
        engine_core, process = module.EngineCore, module.EngineCoreProc
    except Exception as error:
        warn_once(f"TableTune stays off: vLLM's engine core cannot be imported: {error!r}")
        return
    problem: str | None = None
    version = "unknown"
    try:
        version = supported_version(importlib.metadata.version)
        outputs = importlib.import_module("vllm.v1.core.sched.output")
        scheduler = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
        model_output = importlib.import_module("vllm.v1.outputs").ModelRunnerOutput
        sums = importlib.import_module("vllm.v1.spec_decode.metrics").SpecDecodingStats
        scheduled = (outputs.SchedulerOutput, outputs.CachedRequestData)
        probe(scheduler, (*scheduled, model_output, sums))
        wrap_scheduler(scheduler, settings, version)
        wrap_core(engine_core, process, settings)
    except Exception as error:
        problem = str(error) if isinstance(error, PluginError) else repr(error)
        warn_once(f"TableTune stays off: {problem}")
    try:
        add_utilities(engine_core, version, problem)
    except Exception as error:
        warn_once(f"TableTune: its endpoints will not answer: {error!r}")
