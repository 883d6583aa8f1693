"""Counts each request's draft where vLLM does not add them up itself.

These run once for each drafted request of a step, inside vLLM's own loop: at 256 requests
every 4 ns in here are a microsecond a step. So each does one thing, and which of them is in
place is decided once a step.
"""

from collections.abc import Callable
from typing import Any

from tabletune_vllm.runtime import Runtime

# In the place of Scheduler.make_spec_decoding_stats.
CountHook = Callable[..., Any]


def count_hooks(runtime: Runtime, ask: Any, *, silent: bool) -> tuple[CountHook, CountHook]:
    """A hook that counts every request, and one that leaves out invalidated drafts.

    The first is for steps without any draft that a grammar made invalid. ask: vLLM's own method.
    silent: vLLM's statistics are off; its own answer is then None, and asking for it would cost
    more than counting does.
    """
    draft_counts = runtime.observer.draft_counts

    def count_all(
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> None:
        try:
            draft_counts[num_draft_tokens][num_accepted_tokens] += 1
        except Exception as error:
            runtime.turn_off(f"counting a draft failed: {error!r}")

    def count_valid(
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> Any:
        arguments = num_draft_tokens, num_accepted_tokens, num_invalid_spec_tokens, request_id
        try:
            if not num_invalid_spec_tokens or request_id not in num_invalid_spec_tokens:
                draft_counts[num_draft_tokens][num_accepted_tokens] += 1
        except Exception as error:
            runtime.turn_off(f"counting a draft failed: {error!r}")
        return None if silent else ask(spec_decoding_stats, *arguments)

    return count_all, count_valid
