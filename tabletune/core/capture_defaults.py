"""The capture sizes that vLLM chooses when none are given."""

from collections.abc import Mapping

DEFAULT_CEILING = 512
"""vLLM's largest default size in tokens (1024 on data-centre Blackwell)."""


def default_capture_sizes(
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_draft_length: int,
    widest_batch: Mapping[int, int] | None = None,
    ceiling: int = DEFAULT_CEILING,
) -> tuple[int, ...]:
    """Default `cudagraph_capture_sizes`, in tokens, ascending, of vLLM 0.32 and 0.33.

    `widest_batch`: for each draft length of the table the widest batch size that uses it; None
    without a table. Source: config/vllm.py, `_set_cudagraph_sizes` (performance mode
    "balanced", no `max_cudagraph_capture_size` given).

    >>> default_capture_sizes(4, 2048, 0)
    (1, 2, 4, 8)
    """
    query_length = max_draft_length + 1
    largest = min(max_num_seqs * query_length * 2, ceiling)
    decode_sizes: set[int] = set()
    if query_length > 1:
        widest = {max_draft_length: max_num_seqs} if widest_batch is None else widest_batch
        for length, batch_size in widest.items():
            counts = _request_counts(min(batch_size, ceiling))
            decode_sizes |= {count * (length + 1) for count in counts}
    elif max_num_seqs <= largest:
        decode_sizes = {max_num_seqs}
    decode_sizes = {size for size in decode_sizes if size <= largest}
    largest = min(largest, max_num_batched_tokens)
    sizes = _strided(largest)
    if max_num_batched_tokens <= largest:
        sizes.add(max_num_batched_tokens)
    sizes |= {size for size in decode_sizes if size <= max_num_batched_tokens}
    return tuple(sorted(sizes))


def _strided(largest: int) -> set[int]:
    """1, 2, 4, then every 8 below 256, then every 16, none above `largest`."""
    sizes = {size for size in (1, 2, 4) if size <= largest}
    return sizes | {*range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)}


def _request_counts(max_requests: int) -> set[int]:
    return _strided(max_requests) | {max_requests}
