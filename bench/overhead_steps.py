"""Engine steps for measuring the plugin's hot path: what vLLM's scheduler hands to the hooks.

The classes are as light as vLLM's own (msgspec and dataclass objects with plain dicts and
lists), and the scheduler does nothing but what the hooks call, so that the difference between
a hooked and a plain call is the plugin's time alone.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

K_MAX = 4
KINDS = ("uniform", "mixed", "prefill", "exchange")


@dataclass
class Cached:
    """vLLM's CachedRequestData."""

    req_ids: list[str]
    num_output_tokens: list[int]
    resumed_req_ids: set[str] = field(default_factory=set)


@dataclass
class Output:
    """vLLM's SchedulerOutput."""

    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: dict[str, list[int]]
    scheduled_new_reqs: list[Any]
    scheduled_cached_reqs: Cached
    num_spec_tokens_to_schedule: int
    num_invalid_spec_tokens: dict[str, int] | None = None
    preempted_req_ids: set[str] | None = None
    sums: Any = None  # what vLLM would have counted; not a field of vLLM's


@dataclass
class Sums:
    """vLLM's SpecDecodingStats."""

    num_drafts: int
    num_draft_tokens_per_pos: list[int]
    num_accepted_tokens_per_pos: list[int]


class PlainScheduler:
    """A scheduler of `batch` requests whose step costs nothing."""

    def __init__(self, batch: int) -> None:
        self.log_stats = True
        self.dynamic_sd_lookup: list[int] = [K_MAX] * (batch + 1)
        self.num_spec_tokens = K_MAX
        self.use_v2_model_runner = True
        self.vllm_config = SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_size=1),
            scheduler_config=SimpleNamespace(max_num_seqs=batch, async_scheduling=True),
            device_config=SimpleNamespace(device_type="cpu"),
            speculative_config=SimpleNamespace(method="ngram"),
            model_config=SimpleNamespace(served_model_name="bench"),
        )
        self._counts = (batch, 0)

    def get_request_counts(self) -> tuple[int, int]:
        """Running and waiting requests."""
        return self._counts

    def get_kv_cache_usage(self) -> float:
        """A share."""
        return 0.5

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: Any,
        request_id: str,
    ) -> Any:
        """As vLLM with its statistics switched off."""
        if not self.log_stats or not num_draft_tokens:
            return None
        return spec_decoding_stats

    def make_stats(self, spec_decoding_stats: Any = None, other: Any = None) -> Any:
        """Called once a step where vLLM logs statistics."""
        return None

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Hands over the sums, as vLLM does; without statistics it asks for each request."""
        if not self.log_stats:
            outputs, index = (
                model_runner_output.sampled_token_ids,
                model_runner_output.req_id_to_index,
            )
            for request, draft in scheduler_output.scheduled_spec_decode_tokens.items():
                self.make_spec_decoding_stats(
                    None,
                    num_draft_tokens=len(draft),
                    num_accepted_tokens=len(outputs[index[request]]) - 1,
                    num_invalid_spec_tokens=None,
                    request_id=request,
                )
        self.make_stats(scheduler_output.sums)
        return scheduler_output


def steps(kind: str, batch: int, count: int, seed: int = 1) -> list[tuple[Any, Any]]:
    """`count` consecutive steps of one kind, as (scheduler output, model output).

    uniform: every request has K_MAX drafts. mixed: 0 to K_MAX drafts. prefill: mixed, and in
    every step one request ends and a new one joins with its prompt. finish: mixed, and the
    first request of the step before is gone while another joined.
    """
    return list(_steps(kind, batch, count, random.Random(seed)))


def _steps(kind: str, batch: int, count: int, rng: random.Random) -> Iterator[tuple[Any, Any]]:
    names = [f"cmpl-{rng.getrandbits(64):016x}-{i}" for i in range(batch)]
    for number in range(count):
        new: list[Any] = []
        if kind in ("prefill", "exchange"):
            gone = rng.randrange(batch) if kind == "exchange" else batch - 1
            joined = f"cmpl-{rng.getrandbits(64):016x}-{number}"
            names = [*names[:gone], *names[gone + 1 :], joined]
            new = [SimpleNamespace(req_id=joined)]
        cached = names[: len(names) - len(new)]
        drafts: dict[str, list[int]] = {}
        for name in cached:
            length = K_MAX if kind == "uniform" else rng.randint(0, K_MAX)
            if length:
                drafts[name] = [-1] * length
        scheduled = {name: 1 + len(drafts.get(name, ())) for name in cached}
        scheduled |= {request.req_id: 100 for request in new}
        tokens = [[7] * rng.randint(1, 1 + len(drafts.get(name, ()))) for name in names]
        lengths = [len(draft) for draft in drafts.values()]
        hits = [len(t) - 1 for t in tokens]
        yield (
            Output(
                num_scheduled_tokens=scheduled,
                total_num_scheduled_tokens=sum(scheduled.values()),
                scheduled_spec_decode_tokens=drafts,
                scheduled_new_reqs=new,
                scheduled_cached_reqs=Cached(cached, [5] * len(cached)),
                num_spec_tokens_to_schedule=K_MAX,
                sums=Sums(
                    len(drafts),
                    [sum(d > i for d in lengths) for i in range(K_MAX)],
                    [sum(h > i for h in hits) for i in range(K_MAX)],
                ),
            ),
            SimpleNamespace(
                sampled_token_ids=tokens,
                req_id_to_index={name: at for at, name in enumerate(names)},
                cudagraph_stats=None,
            ),
        )
