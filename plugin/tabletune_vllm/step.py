"""One engine step as plain values, and what whole lists tell about it at little cost."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

# Requests verified, and requests drafted and accepted through position 1 … K_max.
Counts = tuple[int, Sequence[int], Sequence[int]]


@dataclass(slots=True)
class Step:
    """One engine step as the scheduler saw it.

    scheduled: tokens per request; drafts: draft tokens to verify per request (requests
    without a draft are absent); draft_length: K chosen in this step, drafted at its end and
    verified in the next; counts: the step's sums, or None where draft_counts holds them; new
    and resumed: requests that start or recompute; cached and
    cached_outputs: the others, and the output tokens each had (or surely has in flight);
    outputs: the new tokens per request, as vLLM left them; disturbed: it was a call of an
    endpoint that may have made it long.
    """

    time_s: float
    scheduled: Mapping[str, int]
    scheduled_tokens: int
    drafts: Mapping[str, Sequence[int]]
    draft_length: int
    new: Sequence[str]
    resumed: Set[str]
    cached: Sequence[str]
    cached_outputs: Sequence[int]
    outputs: Sequence[Sequence[int]]
    invalid_requests: int
    preempted_requests: int
    running_requests: int
    waiting_requests: int
    kv_cache_usage: float
    graph_mode: int
    padded_tokens: int
    counts: Counts | None = None
    disturbed: bool = False


def draft_sizes(
    drafts: Mapping[str, Sequence[int]], verified: int, drafted: Sequence[int]
) -> tuple[int, int, int]:
    """The shortest and the longest draft, and the tokens of all."""
    if not drafts:
        return 0, 0, 0
    if verified == len(drafts):
        # The counts hold every draft, and drafted never grows with the position.
        return drafted.count(verified), len(drafted) - drafted.count(0), sum(drafted)
    lengths = list(map(len, drafts.values()))
    return min(lengths), max(lengths), sum(lengths)


def is_thinned(names: Sequence[str], last: Sequence[str]) -> bool:
    """Whether names is last with one or two left out, as when requests have ended.

    Finds each gap by halving, comparing slices, and by a look at the last few: less work than
    looking every name up.
    """
    gaps = len(last) - len(names)
    if not 0 < gaps <= 2:
        return False
    start = 0
    for gone in range(gaps):
        end = len(names)
        while end - start > 8:
            middle = (start + end) // 2
            if names[start : middle + 1] == last[start + gone : middle + gone + 1]:
                start = middle + 1
            else:
                end = middle
        while start < end and names[start] == last[start + gone]:
            start += 1
    return names[start:] == last[start + gaps :]
