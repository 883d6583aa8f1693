"""The vLLM arguments of each kind of engine a run boots."""

import json
from collections.abc import Sequence
from typing import Any

from tabletune.pipeline.request import RunRequest
from tabletune.records.plan import CapturePlan

#: Arguments that TableTune sets itself; a user's own would contradict the run.
RESERVED = ("--model", "--port", "--host", "--max-num-seqs", "--speculative-config", "-sc")


def naming_table(plan: CapturePlan) -> list[list[int]]:
    """A boot table that names every length of the plan, so that each gets its graphs.

    vLLM captures graphs for the lengths in its dense lookup (vllm/v1/worker/gpu/
    cudagraph_utils.py). The longest lengths come first, one batch size each.

    Raises:
        ValueError: more lengths than batch sizes.
    """
    lengths = sorted(plan.lengths, reverse=True)
    if len(lengths) > plan.max_num_seqs:
        raise ValueError(f"{len(lengths)} draft lengths need max_num_seqs ≥ {len(lengths)}")
    table = [[i, i, length] for i, length in enumerate(lengths, start=1)]
    table[-1][1] = plan.max_num_seqs
    return table


def speculative_config(
    request: RunRequest, table: Sequence[Sequence[int]] | None, max_draft_length: int
) -> dict[str, Any]:
    """vLLM's speculative config with `table`, or with a fixed length when it is None."""
    config: dict[str, Any] = {"method": request.method}
    if request.drafter:
        config["model"] = request.drafter
    if request.method == "ngram":
        config |= {"prompt_lookup_max": 4, "prompt_lookup_min": 2}
    config |= request.speculative_extra
    config["num_speculative_tokens"] = max_draft_length
    if table is not None:
        config["num_speculative_tokens_per_batch_size"] = [list(part) for part in table]
    return config


def plan_arguments(plan: CapturePlan) -> list[str]:
    """``--compilation-config`` for the plan; nothing for an engine without graphs."""
    if plan.graph_mode == "NONE" and not plan.capture_sizes:
        return []
    config = {
        "cudagraph_mode": plan.graph_mode,
        "cudagraph_capture_sizes": list(plan.capture_sizes),
    }
    return ["--compilation-config", json.dumps(config, separators=(",", ":"))]


def engine_arguments(
    request: RunRequest,
    plan: CapturePlan | None,
    table: Sequence[Sequence[int]] | None,
    speculation: bool = True,
) -> list[str]:
    """All arguments of one engine; without speculation the plan is left to vLLM."""
    arguments = ["--max-num-seqs", str(request.max_num_seqs), *request.engine_args]
    if speculation and plan is not None:
        config = speculative_config(request, table, plan.max_draft_length)
        arguments += ["--speculative-config", json.dumps(config, separators=(",", ":"))]
        arguments += plan_arguments(plan)
    return arguments
