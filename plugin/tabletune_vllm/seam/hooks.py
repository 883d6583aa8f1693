"""The hooks on vLLM's scheduler (vllm/v1/core/sched/scheduler.py).

They sit on the one scheduler object, not on its class, so that turning off leaves vLLM's own
methods and nothing else.
"""

import functools
import secrets
import time
from collections.abc import Callable
from typing import Any, cast

from tabletune_vllm import __version__
from tabletune_vllm.errors import InactiveError, PluginError, SeamError
from tabletune_vllm.logs import logger, warn_once
from tabletune_vllm.observe import GRAPH_UNKNOWN, Step
from tabletune_vllm.runtime import EngineFacts, Runtime
from tabletune_vllm.seam.graphs import GRAPH_MODES
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
    )
    return hook(scheduler, facts, settings.ring_steps, time.perf_counter)


def hook(
    scheduler: Any, facts: EngineFacts, ring_steps: int, clock: Callable[[], float]
) -> Runtime:
    """Put the two hooks on a scheduler; vLLM's own results are returned untouched."""
    update, make_stats = scheduler.update_from_output, scheduler.make_spec_decoding_stats

    def set_lookup(lookup: list[int]) -> None:
        scheduler.dynamic_sd_lookup = lookup

    def unhook() -> None:
        for name, function in hooks.items():
            if scheduler.__dict__.get(name) is function:
                delattr(scheduler, name)

    runtime = Runtime(facts, scheduler.dynamic_sd_lookup, ring_steps, set_lookup, unhook)
    observer = runtime.observer
    counts, width = observer.draft_counts, observer.width

    def update_from_output(scheduler_output: Any, model_runner_output: Any) -> Any:
        now_s = clock()
        result = update(scheduler_output, model_runner_output)
        if runtime.reason is None:
            try:
                step = step_of(scheduler, scheduler_output, model_runner_output, now_s)
                observer.record(step)
            except Exception as error:
                runtime.turn_off(f"recording a step failed: {error!r}")
        return result

    def make_spec_decoding_stats(
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> Any:
        try:
            if not num_invalid_spec_tokens or request_id not in num_invalid_spec_tokens:
                counts[num_draft_tokens * width + num_accepted_tokens] += 1
        except Exception as error:
            runtime.turn_off(f"counting a draft failed: {error!r}")
        return make_stats(
            spec_decoding_stats,
            num_draft_tokens,
            num_accepted_tokens,
            num_invalid_spec_tokens,
            request_id,
        )

    hooks = {
        "update_from_output": update_from_output,
        "make_spec_decoding_stats": make_spec_decoding_stats,
    }
    for name, function in hooks.items():
        setattr(scheduler, name, function)
    logger.info("TableTune %s measures this engine (%s)", __version__, facts.runner)
    return runtime


def step_of(scheduler: Any, output: Any, model_output: Any, now_s: float) -> Step:
    """The plain values of one step, from vLLM's scheduler and model outputs."""
    cached = output.scheduled_cached_reqs
    running, waiting = scheduler.get_request_counts()
    graph = model_output.cudagraph_stats
    mode, padded = GRAPH_UNKNOWN, -1
    if graph is not None:
        mode = GRAPH_MODES.get(str(graph.runtime_mode).rpartition(".")[2], GRAPH_UNKNOWN)
        padded = graph.num_padded_tokens
    return Step(
        time_s=now_s,
        scheduled=output.num_scheduled_tokens,
        scheduled_tokens=output.total_num_scheduled_tokens,
        drafts=output.scheduled_spec_decode_tokens,
        draft_length=output.num_spec_tokens_to_schedule,
        new=[request.req_id for request in output.scheduled_new_reqs],
        resumed=cached.resumed_req_ids,
        cached=cached.req_ids,
        cached_outputs=cached.num_output_tokens,
        outputs=model_output.sampled_token_ids,
        invalid_requests=len(output.num_invalid_spec_tokens or ()),
        preempted_requests=len(output.preempted_req_ids or ()),
        running_requests=running,
        waiting_requests=waiting,
        kv_cache_usage=scheduler.get_kv_cache_usage(),
        graph_mode=mode,
        padded_tokens=padded,
    )
