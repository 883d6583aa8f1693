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
from tabletune_vllm.seam.steps import step_of
from tabletune_vllm.step import Counts

Hooks = dict[str, Callable[..., Any]]


def hook(
    scheduler: Any, facts: EngineFacts, ring_steps: int, clock: Callable[[], float]
) -> Runtime:
    """Put the hooks on a scheduler; vLLM's own results are returned untouched.

    Raises:
        Exception: whatever an unforeseen scheduler causes; nothing is hooked then.
    """
    hooks: Hooks = {}

    def set_lookup(lookup: list[int]) -> None:
        scheduler.dynamic_sd_lookup = lookup

    def unhook() -> None:
        for name, function in hooks.items():
            if scheduler.__dict__.get(name) is function:
                delattr(scheduler, name)

    runtime = Runtime(facts, scheduler.dynamic_sd_lookup, ring_steps, set_lookup, unhook)
    try:
        hooks |= _step_hooks(scheduler, runtime, clock)
        for name, function in hooks.items():
            if name != "make_spec_decoding_stats" or not scheduler.log_stats:
                setattr(scheduler, name, function)
        logger.info("TableTune %s measures this engine (%s)", __version__, facts.runner)
        return runtime
    except Exception as error:
        runtime.turn_off(f"hooking the scheduler failed: {error!r}")
        raise


def _step_hooks(scheduler: Any, runtime: Runtime, clock: Callable[[], float]) -> Hooks:
    """The hooks by the name of the method that each replaces.

    vLLM adds up a step's drafts itself and hands the sums to make_stats once per step, which
    costs nothing to read. Only where it does not (statistics switched off), or where its sums
    contain grammar-invalidated drafts, is every request counted by a hook of its own.
    """
    update = scheduler.update_from_output
    make_stats = scheduler.make_stats
    count_always = not scheduler.log_stats
    observer = runtime.observer
    nothing = [0] * runtime.facts.max_draft_length
    hooked_count = _count_hook(runtime, scheduler.make_spec_decoding_stats, silent=count_always)
    sums: Any = None
    begun_s = 0.0
    counting = count_always

    def hooked_update(scheduler_output: Any, model_runner_output: Any) -> Any:
        nonlocal sums, begun_s, counting
        try:
            begun_s, sums, counting = clock(), None, count_always
            if runtime.start is not None:
                runtime.start_again()
            if scheduler_output.num_invalid_spec_tokens and not counting:
                counting = True
                scheduler.make_spec_decoding_stats = hooked_count
        except Exception as error:
            runtime.turn_off(f"preparing a step failed: {error!r}")
        result = update(scheduler_output, model_runner_output)
        try:
            if runtime.reason is None:
                counts: Counts | None = None
                if not counting:
                    counts = (0, nothing, nothing) if sums is None else _counts_of(sums)
                elif not count_always:
                    del scheduler.make_spec_decoding_stats
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

    return {
        "update_from_output": hooked_update,
        "make_stats": hooked_stats,
        "make_spec_decoding_stats": hooked_count,
    }


def _count_hook(runtime: Runtime, count_request: Any, silent: bool) -> Callable[..., Any]:
    """The hook that counts each request. silent: vLLM's statistics are off; its own answer is
    then None, and asking for it would cost more than counting does."""
    draft_counts = runtime.observer.draft_counts

    def count_silently(
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> None:
        try:
            if not num_invalid_spec_tokens or request_id not in num_invalid_spec_tokens:
                draft_counts[num_draft_tokens][num_accepted_tokens] += 1
        except Exception as error:
            runtime.turn_off(f"counting a draft failed: {error!r}")

    def count_and_ask(
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> Any:
        arguments = num_draft_tokens, num_accepted_tokens, num_invalid_spec_tokens, request_id
        count_silently(spec_decoding_stats, *arguments)
        return count_request(spec_decoding_stats, *arguments)

    return count_silently if silent else count_and_ask


def _counts_of(sums: Any) -> Counts:
    return sums.num_drafts, sums.num_draft_tokens_per_pos, sums.num_accepted_tokens_per_pos
