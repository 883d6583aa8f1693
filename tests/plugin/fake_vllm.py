"""Just enough of vLLM's scheduler to break it on purpose; the real one is in the engine test."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class CachedRequestData:
    req_ids: list[str] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)
    num_output_tokens: list[int] = field(default_factory=list)


@dataclass
class SchedulerOutput:
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: dict[str, list[int]]
    scheduled_new_reqs: list[Any] = field(default_factory=list)
    scheduled_cached_reqs: CachedRequestData = field(default_factory=CachedRequestData)
    num_spec_tokens_to_schedule: int = 0
    num_invalid_spec_tokens: dict[str, int] | None = None
    preempted_req_ids: set[str] | None = None


@dataclass
class ModelRunnerOutput:
    sampled_token_ids: list[list[int]]
    cudagraph_stats: Any = None


@dataclass
class SpecDecodingStats:
    num_drafts: int = 0
    num_draft_tokens_per_pos: list[int] = field(default_factory=lambda: [0] * 3)
    num_accepted_tokens_per_pos: list[int] = field(default_factory=lambda: [0] * 3)


OUTPUT_CLASSES = (SchedulerOutput, CachedRequestData, ModelRunnerOutput, SpecDecodingStats)


class Scheduler:
    """vLLM's methods by name and signature, with a decode-only batch of `batch` requests."""

    def __init__(
        self,
        lookup: list[int] | None = None,
        ranks: int = 1,
        max_num_seqs: int = 4,
        k_max: int = 3,
        runner_v2: bool = False,
        device: str = "cpu",
        log_stats: bool = True,
    ) -> None:
        self.log_stats = log_stats
        self.dynamic_sd_lookup = lookup
        self.num_spec_tokens = k_max
        self.use_v2_model_runner = runner_v2
        self.vllm_config = SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_size=ranks),
            scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs, async_scheduling=False),
            device_config=SimpleNamespace(device_type=device),
            speculative_config=SimpleNamespace(method="ngram"),
            model_config=SimpleNamespace(served_model_name="fake-model"),
        )
        self.counted: list[tuple[int, int]] = []
        self.pending = 0

    def get_request_counts(self) -> tuple[int, int]:
        return 2, 0

    def get_kv_cache_usage(self) -> float:
        return 0.25

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> Any:
        self.counted.append((num_draft_tokens, num_accepted_tokens))
        if not self.log_stats:
            return None
        stats = spec_decoding_stats or SpecDecodingStats()
        stats.num_drafts += 1
        for position in range(
            num_draft_tokens - (num_invalid_spec_tokens or {}).get(request_id, 0)
        ):
            stats.num_draft_tokens_per_pos[position] += 1
        for position in range(num_accepted_tokens):
            stats.num_accepted_tokens_per_pos[position] += 1
        return stats

    def make_stats(self, spec_decoding_stats: Any = None, other: Any = None) -> Any:
        return spec_decoding_stats if self.log_stats else None

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        stats = None
        drafts = scheduler_output.scheduled_spec_decode_tokens
        for request, tokens in zip(drafts, model_runner_output.sampled_token_ids, strict=False):
            stats = self.make_spec_decoding_stats(
                stats,
                num_draft_tokens=len(drafts[request]),
                num_accepted_tokens=len(tokens) - 1,
                num_invalid_spec_tokens=scheduler_output.num_invalid_spec_tokens,
                request_id=request,
            )
        return {"stats": self.make_stats(stats, "other"), "of": scheduler_output}

    def decode(self, batch: int, accepted: int = 0) -> tuple[SchedulerOutput, ModelRunnerOutput]:
        """The outputs of a pure decode step whose drafts were made by the step before."""
        names = [f"r{i}" for i in range(batch)]
        drafts = {name: [-1] * self.pending for name in names} if self.pending else {}
        length = self.dynamic_sd_lookup[batch] if self.dynamic_sd_lookup and batch else 0
        output = SchedulerOutput(
            num_scheduled_tokens=dict.fromkeys(names, 1 + self.pending),
            total_num_scheduled_tokens=batch * (1 + self.pending),
            scheduled_spec_decode_tokens=drafts,
            scheduled_cached_reqs=CachedRequestData(names, set(), [1] * batch),
            num_spec_tokens_to_schedule=length,
        )
        tokens = [[7] * (1 + min(accepted, self.pending)) for _ in names]
        self.pending = length
        return output, ModelRunnerOutput(tokens)


class EngineCore:
    """Holds a scheduler; utility methods are added to a subclass in each test."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.model_executor = SimpleNamespace()

    def run_busy_loop(self) -> str:
        """Of vLLM's EngineCoreProc."""
        return "the loop has ended"
