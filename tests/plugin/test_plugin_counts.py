"""Where vLLM makes no statistics, what the hooks count equals a plain count of each request."""

from typing import Any

import fake_vllm
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune_vllm.seam.hooks import attach
from tabletune_vllm.settings import Settings

K_MAX, SIZE = 3, 6


class Scheduler(fake_vllm.Scheduler):
    """Skips requests that ended while their step was computed, as vLLM's scheduler does."""

    ended: frozenset[str] = frozenset()

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        stats = None
        drafts = scheduler_output.scheduled_spec_decode_tokens
        names = scheduler_output.num_scheduled_tokens
        for name, tokens in zip(names, model_runner_output.sampled_token_ids, strict=True):
            if name in self.ended or name not in drafts or not tokens:
                continue
            stats = self.make_spec_decoding_stats(
                stats,
                num_draft_tokens=len(drafts[name]),
                num_accepted_tokens=len(tokens) - 1,
                num_invalid_spec_tokens=scheduler_output.num_invalid_spec_tokens,
                request_id=name,
            )
            # A request that ends is trimmed in place.
            del tokens[2:]
        return self.make_stats(stats, "other")


# Of each request in each step: drafts, how many of them hold, ended meanwhile, invalidated.
REQUEST = st.tuples(st.integers(0, K_MAX), st.integers(0, K_MAX), st.booleans(), st.booleans())
STEPS = st.lists(st.lists(REQUEST, min_size=1, max_size=SIZE), min_size=1, max_size=8)


@pytest.mark.parametrize("most_pending", [0, 3])
@pytest.mark.parametrize("grammar", [False, True])
@given(steps=STEPS)
def test_counts_equal_a_plain_count(
    steps: list[list[tuple[int, int, bool, bool]]], grammar: bool, most_pending: int
) -> None:
    scheduler = Scheduler([K_MAX] * (SIZE + 1), max_num_seqs=SIZE, k_max=K_MAX, log_stats=False)
    runtime = attach(scheduler, Settings(measure=True), "0.32.0")
    runtime.observer.most_pending = most_pending
    drafted, accepted, verified, tokens_left = [0] * K_MAX, [0] * K_MAX, 0, 0
    for requests in steps:
        names = [f"r{at}" for at in range(len(requests))]
        outputs = [[7] * (1 + min(d, a)) for d, a, _, _ in requests]
        drafts = {n: [-1] * r[0] for n, r in zip(names, requests, strict=True) if r[0]}
        invalid = {n: 1 for n, r in zip(names, requests, strict=True) if grammar and r[3] and r[0]}
        scheduler.ended = frozenset(n for n, r in zip(names, requests, strict=True) if r[2])
        for name, (d, a, ended, _) in zip(names, requests, strict=True):
            counted = d > 0 and not ended
            tokens_left += min(2, 1 + min(d, a)) if counted else 1 + min(d, a)
            if counted and name not in invalid:
                verified += 1
                for position in range(K_MAX):
                    drafted[position] += d > position
                    accepted[position] += min(d, a) > position
        output = fake_vllm.SchedulerOutput(
            num_scheduled_tokens={n: 1 + r[0] for n, r in zip(names, requests, strict=True)},
            total_num_scheduled_tokens=sum(1 + r[0] for r in requests),
            scheduled_spec_decode_tokens=drafts,
            scheduled_cached_reqs=fake_vllm.CachedRequestData(names, set(), [1] * len(names)),
            num_spec_tokens_to_schedule=K_MAX,
            num_invalid_spec_tokens=invalid or None,
        )
        scheduler.update_from_output(output, fake_vllm.ModelRunnerOutput(outputs))
    totals = runtime.observer.totals()
    assert runtime.reason is None
    assert totals["drafted_through"] == drafted
    assert totals["accepted_through"] == accepted
    assert totals["verified_requests"] == verified
    assert totals["output_tokens"] == tokens_left
    assert totals["steps"] == len(steps)
