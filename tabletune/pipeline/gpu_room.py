"""Whether a GPU has room for two engines beside each other, and how much each may take."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tabletune.measure.load import LoadRequest

#: The share of a GPU's memory that one engine takes at most where nobody says how much: vLLM's
#: default is less (0.92 in vllm/config/cache.py, 0.9 before).
ONE_ENGINE = 0.95
#: The share that two may take together at most.
TWO_ENGINES = 0.85
#: What is wanted of a KV cache over what the requests fill: blocks are filled in part.
SPARE = 1.25


@dataclass(frozen=True)
class KvCache:
    """The KV cache of an engine that runs alone.

    Attributes:
        size_bytes, size_tok: its bytes, and the tokens that it holds.
        memory_share: of the GPU's memory, given to that engine; None where it was vLLM's default.
    """

    size_bytes: int
    size_tok: int
    memory_share: float | None = None


@dataclass(frozen=True)
class Room:
    """What each of two engines is given: a share of the GPU's memory, of which the KV cache."""

    memory_share: float
    kv_cache_bytes: int


def room_for_two(memory_bytes: int, alone: KvCache, needed_tok: int) -> Room | None:
    """What each of two engines may take; None where the requests would not fit.

    Weights, graphs and activations take what an engine alone leaves of its memory to other things
    than its KV cache. Two engines take them twice and share the rest. Together they take no more
    than the one was given.

    Args:
        memory_bytes: of the GPU.
        alone: of one of the two, measured where it ran alone. The other needs no more.
        needed_tok: see there.
    """
    given = ONE_ENGINE if alone.memory_share is None else alone.memory_share
    besides = given * memory_bytes - alone.size_bytes
    each = min(given, TWO_ENGINES) / 2
    kv_cache = int(each * memory_bytes - besides)
    fits = kv_cache * alone.size_tok >= SPARE * needed_tok * alone.size_bytes
    # An engine that takes nothing besides its KV cache was not measured on this GPU.
    if besides <= 0 or kv_cache <= 0 or not fits:
        return None
    return Room(each, kv_cache)


def needed_tok(
    requests: Sequence[LoadRequest], concurrency: int, touched: int, max_model_len: int
) -> int:
    """What a KV cache should hold for windows to be the same in it as in a larger one, in tokens.

    All requests that a window touches, from prompt to last token: where a prompt would be gone
    from the prefix cache when its turn comes again, it would be computed anew. vLLM boots with
    room for one of `max_model_len` only.

    Args:
        requests: a window replays them in turn.
        concurrency: of them are open at once.
        touched: so many does a window touch.
    """
    lengths = [_longest_tok(request, max_model_len) for request in requests]
    all_touched = sum(itertools.islice(itertools.cycle(lengths), touched))
    return max(all_touched, concurrency * max(lengths), max_model_len)


def _longest_tok(request: LoadRequest, max_model_len: int) -> int:
    cut = request.extra.get("truncate_prompt_tokens", max_model_len)
    prompt = len(request.prompt) if isinstance(request.prompt, list) else int(cut)
    return min(prompt + request.max_tokens, max_model_len)
