"""The hooks on vLLM's scheduler (vllm/v1/core/sched/scheduler.py).

They sit on the one scheduler object, not on its class, so that turning off leaves vLLM's own
methods and nothing else.
"""

import functools
import secrets
import time
from typing import Any, cast

from tabletune_vllm.errors import InactiveError, PluginError, SeamError
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.logs import warn_once
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam.step_hooks import hook
from tabletune_vllm.settings import Settings

# The scheduler's attribute that holds its Runtime, or the reason (text) why it has none.
MARK = "_tabletune"


def wrap_scheduler(scheduler_class: Any, settings: Settings, version: str) -> None:
    """Make every scheduler that is built from now on attach itself; once per class."""
    original = scheduler_class.__init__
    if getattr(original, MARK, False):
        return

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            setattr(self, MARK, attach(self, settings, version))
        except Exception as error:
            reason = str(error) if isinstance(error, PluginError) else repr(error)
            setattr(self, MARK, reason)
            warn_once(f"TableTune is inactive: {reason}")

    setattr(init, MARK, True)
    scheduler_class.__init__ = init


def attach(scheduler: Any, settings: Settings, version: str) -> Runtime:
    """Hook one scheduler object.

    Raises:
        InactiveError: data parallelism, no table at boot, or a table of another form.
    """
    config = scheduler.vllm_config
    ranks = config.parallel_config.data_parallel_size
    if ranks > 1:
        raise InactiveError(
            "data parallel size 1 (vLLM drops the table above it)", str(ranks), "use one rank"
        )
    lookup: object = scheduler.dynamic_sd_lookup
    if lookup is None:
        raise InactiveError(
            "speculative_config.num_speculative_tokens_per_batch_size at boot",
            "no table in force",
            "boot with a table that covers batch sizes 1 to max_num_seqs",
        )
    max_num_seqs = config.scheduler_config.max_num_seqs
    k_max = scheduler.num_spec_tokens
    dense = cast(list[object], lookup) if type(lookup) is list else []
    if len(dense) != max_num_seqs + 1 or any(
        type(k) is not int or not 0 <= k <= k_max for k in dense
    ):
        raise SeamError("a dense lookup list", repr(dense)[:80], "use a supported version")
    facts = EngineFacts(
        vllm_version=version,
        runner="V2" if scheduler.use_v2_model_runner else "V1",
        device=str(config.device_config.device_type),
        method=str(config.speculative_config.method),
        async_scheduling=bool(config.scheduler_config.async_scheduling),
        max_num_seqs=max_num_seqs,
        max_draft_length=k_max,
        run_id=secrets.token_hex(8),
        started_unix_s=time.time(),
        model=_model_name(config.model_config.served_model_name),
    )
    return hook(scheduler, facts, settings.ring_steps, time.perf_counter)


def _model_name(served: object) -> str:
    """The name that vLLM's own metrics carry: the first where there are several."""
    names = cast(list[object], served) if isinstance(served, list) else [served]
    return str(names[0]) if names else ""
