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
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.logs import logger, warn_once
from tabletune_vllm.observe import Counts
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam.steps import step_of
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


def hook(
    scheduler: Any, facts: EngineFacts, ring_steps: int, clock: Callable[[], float]
) -> Runtime:
    """Put the hooks on a scheduler; vLLM's own results are returned untouched.

    vLLM adds up a step's drafts itself and hands the sums to make_stats once per step, which
    costs nothing to read. Only where it does not (statistics switched off), or where its sums
    contain grammar-invalidated drafts, is every request counted by a hook of its own.
    """
    update = scheduler.update_from_output
    make_stats = scheduler.make_stats
    count_request = scheduler.make_spec_decoding_stats
    count_always = not scheduler.log_stats
    sums: Any = None

    def set_lookup(lookup: list[int]) -> None:
        scheduler.dynamic_sd_lookup = lookup

    def unhook() -> None:
        for name, function in hooks.items():
            if scheduler.__dict__.get(name) is function:
                delattr(scheduler, name)

    runtime = Runtime(facts, scheduler.dynamic_sd_lookup, ring_steps, set_lookup, unhook)
    observer = runtime.observer
    nothing = [0] * facts.max_draft_length

    def hooked_update(scheduler_output: Any, model_runner_output: Any) -> Any:
        nonlocal sums
        now_s, sums, counting = clock(), None, count_always
        if runtime.reason is not None:
            return update(scheduler_output, model_runner_output)
        try:
            if runtime.start is not None:
                start, runtime.start = runtime.start, None
                start()
            if scheduler_output.num_invalid_spec_tokens and not counting:
                counting = True
                scheduler.make_spec_decoding_stats = hooked_count
        except Exception as error:
            runtime.turn_off(f"preparing a step failed: {error!r}")
        result = update(scheduler_output, model_runner_output)
        if runtime.reason is None:
            try:
                counts: Counts | None = None
                if not counting:
                    counts = (0, nothing, nothing) if sums is None else _counts_of(sums)
                elif not count_always:
                    del scheduler.make_spec_decoding_stats
                observer.record(
                    step_of(scheduler, scheduler_output, model_runner_output, now_s, counts)
                )
            except Exception as error:
                runtime.turn_off(f"recording a step failed: {error!r}")
        return result

    def hooked_stats(*args: Any, **kwargs: Any) -> Any:
        nonlocal sums
        sums = args[0] if args else kwargs.get("spec_decoding_stats")
        return make_stats(*args, **kwargs)

    hooked_count = _count_hook(runtime, count_request, silent=count_always)
    hooks: dict[str, Callable[..., Any]] = {
        "update_from_output": hooked_update,
        "make_stats": hooked_stats,
        "make_spec_decoding_stats": hooked_count,
    }
    for name, function in hooks.items():
        if function is not hooked_count or count_always:
            setattr(scheduler, name, function)
    logger.info("TableTune %s measures this engine (%s)", __version__, facts.runner)
    return runtime


def _count_hook(runtime: Runtime, count_request: Any, silent: bool) -> Callable[..., Any]:
    """The hook that counts each request. silent: vLLM's statistics are off; its own answer is
    then None, which costs a third of asking for it."""
    draft_counts, width = runtime.observer.draft_counts, runtime.observer.width

    def hooked_count(
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> Any:
        try:
            if not num_invalid_spec_tokens or request_id not in num_invalid_spec_tokens:
                draft_counts[num_draft_tokens * width + num_accepted_tokens] += 1
        except Exception as error:
            runtime.turn_off(f"counting a draft failed: {error!r}")
        if silent:
            return None
        return count_request(
            spec_decoding_stats,
            num_draft_tokens,
            num_accepted_tokens,
            num_invalid_spec_tokens,
            request_id,
        )

    return hooked_count


def _model_name(served: object) -> str:
    """The name that vLLM's own metrics carry: the first where there are several."""
    names = cast(list[object], served) if isinstance(served, list) else [served]
    return str(names[0]) if names else ""


def _counts_of(sums: Any) -> Counts:
    return sums.num_drafts, sums.num_draft_tokens_per_pos, sums.num_accepted_tokens_per_pos
