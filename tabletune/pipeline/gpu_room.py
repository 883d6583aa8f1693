"""Whether a GPU has room for two engines beside each other, and how much each may take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tabletune.measure.load import LoadRequest

#: The shares of a GPU's memory that one engine alone takes at most, and two take together.
ONE_ENGINE = 0.95
TWO_ENGINES = 0.85
#: What is wanted of a KV cache over what the open requests fill.
SPARE = 1.25


@dataclass(frozen=True)
class KvCache:
    """The KV cache of an engine that runs alone: its bytes, and the tokens that it holds."""

    size_bytes: int
    size_tok: int


@dataclass(frozen=True)
class Room:
    """What each of two engines is given: a share of the GPU's memory, of which the KV cache."""

    memory_share: float
    kv_cache_bytes: int


def room_for_two(memory_bytes: int, alone: KvCache, needed_tok: int) -> Room | None:
    """What each of two engines may take; None where the open requests would not fit.

    Weights, graphs and activations take what an engine alone leaves of its memory to other things
    than its KV cache. Two engines take them twice and share the rest.

    Args:
        memory_bytes: of the GPU.
        alone: of one of the two, measured where it ran alone. The other needs no more.
        needed_tok: what the open requests hold together at most.
    """
    besides = ONE_ENGINE * memory_bytes - alone.size_bytes
    each = TWO_ENGINES * memory_bytes / 2
    kv_cache = int(each - besides)
    if kv_cache <= 0 or kv_cache * alone.size_tok < SPARE * needed_tok * alone.size_bytes:
        return None
    return Room(math.ceil(100 * each / memory_bytes) / 100, kv_cache)


def needed_tok(requests: Sequence[LoadRequest], concurrency: int, max_model_len: int) -> int:
    """What so many open requests hold together at most, in tokens; vLLM boots with room for one
    of `max_model_len` only."""
    longest = max(_longest_tok(request, max_model_len) for request in requests)
    return max(concurrency * longest, max_model_len)


def _longest_tok(request: LoadRequest, max_model_len: int) -> int:
    cut = request.extra.get("truncate_prompt_tokens", max_model_len)
    prompt = len(request.prompt) if isinstance(request.prompt, list) else int(cut)
    return min(prompt + request.max_tokens, max_model_len)
