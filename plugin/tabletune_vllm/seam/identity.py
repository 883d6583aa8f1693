"""What the engine says it serves, read from vLLM's configuration (vllm/config/vllm.py)."""

from typing import Any

from tabletune.identity.machine import this_machine
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.source.engine_self import EngineSelf

#: What vLLM writes into speculative_config.model for methods that have no weights.
_NO_DRAFTER = ("ngram", "ngram_gpu", "suffix", "extract_hidden_states")


def engine_self(
    scheduler: Any, facts: EngineFacts, boot_lookup: list[int], graphs: dict[str, object] | None
) -> EngineSelf:
    """What the source's checks compare a version with. Reads only; takes some milliseconds.

    graphs: what seam/graphs.py read, None where nobody asked.
    """
    config = scheduler.vllm_config
    model, speculative = config.model_config, config.speculative_config
    parallel = config.parallel_config
    drafter = speculative.model
    if drafter in _NO_DRAFTER or drafter == model.model:
        drafter = None
    settings = {
        "tensor_parallel_size": str(parallel.tensor_parallel_size),
        "pipeline_parallel_size": str(parallel.pipeline_parallel_size),
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": str(model.quantization),
        "kv_cache_dtype": str(config.cache_config.cache_dtype),
    }
    return EngineSelf(
        device="cpu" if facts.device == "cpu" else "cuda",
        vllm_version=facts.vllm_version,
        runner=facts.runner,
        method=facts.method,
        max_num_seqs=facts.max_num_seqs,
        max_draft_length=facts.max_draft_length,
        boot_lengths=tuple(sorted(set(boot_lookup[1:]))),
        needs_graphs=facts.needs_graphs,
        model=str(model.model),
        model_revision=model.revision,
        drafter=None if drafter is None else str(drafter),
        drafter_revision=speculative.revision,
        settings=settings,
        graphs=graphs,
        machine=this_machine("cpu" if facts.device == "cpu" else "cuda"),
    )
