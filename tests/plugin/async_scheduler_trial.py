"""Run in an engine environment: vLLM's own asynchronous scheduler, two batches in flight.

The model is made up (random numbers of accepted drafts); scheduler, requests, preemptions and
the plugin's hooks are real. Every recorded step is compared with what the scheduler's requests
said at the time. Arguments: model folder, then for each trial KV blocks and 1 for the V2
runner's way of resuming. Prints one JSON object a trial.
"""

import json
import random
import sys
from collections import deque
from typing import Any

import torch

from tabletune_vllm.ring import decode_steps
from tabletune_vllm.seam import install
from tabletune_vllm.settings import Settings

install(Settings(measure=True, ring_steps=4096))

from vllm.config import (  # noqa: E402 - after the hooks
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

TABLE = [(1, 2, 4), (3, 5, 2), (6, 8, 0)]
COLUMNS = ("batch_size", "prefill_requests", "draft_length", "draft_length_verified")


def build(model: str, blocks: int) -> Any:
    """A scheduler with the plugin on it; the config check refuses async for the n-gram drafter
    but the scheduler itself does not care who drafts."""
    target = ModelConfig(model=model, dtype="float32", max_model_len=512)
    limits = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 512}
    scheduling = SchedulerConfig(**limits, is_encoder_decoder=False, async_scheduling=False)
    parallel = ParallelConfig()
    speculation = SpeculativeConfig(
        method="ngram",
        num_speculative_tokens=4,
        prompt_lookup_max=4,
        prompt_lookup_min=2,
        num_speculative_tokens_per_batch_size=TABLE,
        target_model_config=target,
        target_parallel_config=parallel,
    )
    cache = CacheConfig(block_size=16, enable_prefix_caching=False)
    cache.num_gpu_blocks = blocks
    config = VllmConfig(
        model_config=target,
        cache_config=cache,
        scheduler_config=scheduling,
        parallel_config=parallel,
        speculative_config=speculation,
        device_config=DeviceConfig("cpu"),
    )
    config.scheduler_config.async_scheduling = True
    layer = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return AsyncScheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], layer)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=16,
        log_stats=True,
    )


def serve(scheduler: Any, rng: random.Random) -> tuple[list[list[Any]], list[list[int]], int]:
    """Serve 14 requests; what each non-empty step was, K's of its decodes, preemptions."""
    for number in range(14):
        sampling = SamplingParams(max_tokens=rng.randint(5, 60), ignore_eos=True)
        prompt = [1] * rng.randint(3, 100)
        scheduler.add_request(Request(f"r{number}", prompt, sampling, pooling_params=None))
    chosen: dict[str, int] = {}
    truth: list[list[Any]] = []
    in_force: list[list[int]] = []
    preemptions = 0
    flight: deque[tuple[Any, list[list[int]]]] = deque()
    while scheduler.has_requests() or flight:
        if scheduler.has_requests():
            before = {
                name: (r.num_computed_tokens, r.num_tokens + r.num_output_placeholders)
                for name, r in scheduler.requests.items()
            }
            output = scheduler.schedule()
            names = list(output.num_scheduled_tokens)
            decodes = [
                name
                for name in names
                if before[name][0] >= before[name][1] - 1
                and before[name][1] > scheduler.requests[name].num_prompt_tokens
            ]
            length = output.num_spec_tokens_to_schedule
            if names:
                truth.append([len(names), len(names) - len(decodes), length])
                in_force.append(sorted({chosen[name] for name in decodes}))
            chosen.update(dict.fromkeys(names, length))
            preemptions += len(output.preempted_req_ids or ())
            tokens = [
                []
                if scheduler.requests[name].is_prefill_chunk
                else [5]
                * (1 + rng.randint(0, len(output.scheduled_spec_decode_tokens.get(name, ()))))
                for name in names
            ]
            flight.append((output, tokens))
            if len(flight) < 2 and scheduler.has_requests() and names:
                continue
        output, tokens = flight.popleft()
        names = list(output.num_scheduled_tokens)
        index = {name: at for at, name in enumerate(names)}
        model_output = ModelRunnerOutput(
            req_ids=names, req_id_to_index=index, sampled_token_ids=tokens
        )
        scheduler.update_from_output(output, model_output)
    return truth, in_force, preemptions


def trial(model: str, blocks: str, v2: str) -> None:
    scheduler = build(model, int(blocks))
    runtime = scheduler._tabletune
    scheduler.use_v2_model_runner = v2 == "1"
    runtime.pin({"schedule": [[3, 5], [1, 4]], "repeat": 3})
    truth, in_force, preemptions = serve(scheduler, random.Random(1))
    columns: Any = decode_steps(runtime.steps(0, 4096))["columns"]
    recorded = [list(step) for step in zip(*(columns[n] for n in COLUMNS), strict=True)]
    reply = {"truth": truth, "in_force": in_force, "recorded": recorded}
    print(json.dumps({**reply, "preemptions": preemptions, "reason": runtime.reason}))


for blocks, v2 in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
    trial(sys.argv[1], blocks, v2)
