"""What runs in every engine step: hooks around three methods of vLLM's scheduler.

Nothing of ours stands outside a try block: whatever fails in here, vLLM gets its own result,
the boot table comes back and the hooks come off.
"""

from collections.abc import Callable
from typing import Any

from tabletune_vllm import __version__
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.logs import logger
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam.count_hooks import count_hooks
from tabletune_vllm.seam.steps import step_of
from tabletune_vllm.step import Counts

# The methods of a scheduler that hooks replace, each on the object itself.
METHODS = ("update_from_output", "make_stats", "make_spec_decoding_stats")


def hook(
    scheduler: Any, facts: EngineFacts, ring_steps: int, clock: Callable[[], float]
) -> Runtime:
    """Put the hooks on a scheduler; vLLM's own results are returned untouched.

    Raises:
        Exception: whatever an unforeseen scheduler causes; nothing is hooked then.
    """
    ours: list[Callable[..., Any]] = []

    def set_lookup(lookup: list[int]) -> None:
        scheduler.dynamic_sd_lookup = lookup

    def unhook() -> None:
        for name in METHODS:
            if scheduler.__dict__.get(name) in ours:
                delattr(scheduler, name)

    runtime = Runtime(facts, scheduler.dynamic_sd_lookup, ring_steps, set_lookup, unhook)
    try:
        _put_hooks(scheduler, runtime, clock, ours)
        logger.info("TableTune %s measures this engine (%s)", __version__, facts.runner)
        return runtime
    except Exception as error:
        runtime.turn_off(f"hooking the scheduler failed: {error!r}")
        raise


def _put_hooks(
    scheduler: Any,
    runtime: Runtime,
    clock: Callable[[], float],
    ours: list[Callable[..., Any]],
) -> None:
    """Put every hook on and into `ours`.

    vLLM adds up a step's drafts itself and hands the sums to make_stats once per step, which
    costs nothing to read. Only where it does not (statistics switched off), or where its sums
    contain grammar-invalidated drafts, is every request counted by a hook of its own.
    """
    update = scheduler.update_from_output
    make_stats = scheduler.make_stats
    count_always = not scheduler.log_stats
    observer = runtime.observer
    nothing = [0] * runtime.facts.max_draft_length
    count_all, count_valid = count_hooks(
        runtime, scheduler.make_spec_decoding_stats, silent=count_always
    )
    sums: Any = None
    begun_s = 0.0
    invalid = False

    def hooked_update(scheduler_output: Any, model_runner_output: Any) -> Any:
        nonlocal sums, begun_s, invalid
        try:
            begun_s, sums, invalid = clock(), None, False
            if runtime.start is not None:
                runtime.start_again()
            if scheduler_output.num_invalid_spec_tokens and runtime.reason is None:
                invalid = True
                scheduler.make_spec_decoding_stats = count_valid
        except Exception as error:
            runtime.turn_off(f"preparing a step failed: {error!r}")
        result = update(scheduler_output, model_runner_output)
        try:
            if runtime.reason is None:
                counts: Counts | None = None
                if invalid and count_always:
                    scheduler.make_spec_decoding_stats = count_all
                elif invalid:
                    del scheduler.make_spec_decoding_stats
                elif not count_always:
                    counts = (0, nothing, nothing) if sums is None else _counts_of(sums)
                observer.record(
                    step_of(scheduler, scheduler_output, model_runner_output, begun_s, counts)
                )
        except Exception as error:
            runtime.turn_off(f"recording a step failed: {error!r}")
        return result

    def hooked_stats(*args: Any, **kwargs: Any) -> Any:
        nonlocal sums
        try:
            sums = args[0] if args else kwargs.get("spec_decoding_stats")
        except Exception as error:
            runtime.turn_off(f"reading a step's sums failed: {error!r}")
        return make_stats(*args, **kwargs)

    ours += [hooked_update, hooked_stats, count_all, count_valid]
    scheduler.update_from_output = hooked_update
    if count_always:
        scheduler.make_spec_decoding_stats = count_all
    else:
        scheduler.make_stats = hooked_stats


def _counts_of(sums: Any) -> Counts:
    return sums.num_drafts, sums.num_draft_tokens_per_pos, sums.num_accepted_tokens_per_pos
