"""The vLLM arguments of each kind of engine a run boots."""

import json
from typing import Any

from tabletune.pipeline.request import RunRequest
from tabletune.records.plan import CapturePlan
from tabletune.records.table import Table, TableVersion
from tabletune.records.text import MAXIMUM, SETTING, serve_arguments


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


def method_settings(request: RunRequest, max_draft_length: int) -> dict[str, Any]:
    """The keys of vLLM's speculative config that the table does not decide."""
    defaults: dict[str, Any] = {}
    if request.method == "ngram":
        defaults = {"prompt_lookup_max": 4, "prompt_lookup_min": 2}
    settings = defaults | request.speculative_extra
    rates = settings.get("synthetic_acceptance_rates")
    if isinstance(rates, list):  # vLLM wants exactly one per position
        settings["synthetic_acceptance_rates"] = rates[:max_draft_length]
    return settings


def measuring_arguments(request: RunRequest, plan: CapturePlan) -> list[str]:
    """An engine under `plan` that names every length, for the plugin to choose from."""
    config: dict[str, Any] = {"method": request.method}
    if request.drafter:
        config["model"] = request.drafter
    config |= method_settings(request, plan.max_draft_length)
    config |= {MAXIMUM: plan.max_draft_length, SETTING: naming_table(plan)}
    graphs: dict[str, Any] = {"cudagraph_mode": plan.graph_mode}
    if plan.capture_sizes:
        graphs["cudagraph_capture_sizes"] = list(plan.capture_sizes)
    return [
        *("--max-num-seqs", str(request.max_num_seqs)),
        *("--speculative-config", json.dumps(config)),
        *("--compilation-config", json.dumps(graphs)),
        *(("--cudagraph-metrics",) if plan.capture_sizes else ()),  # each step tells its graph
        *request.engine_args,
    ]


def serving_arguments(
    request: RunRequest, version: TableVersion, table: Table | None = None
) -> list[str]:
    """The arguments that are printed for use, exactly.

    table: what an engine with the plugin boots with (records/boot_table.py); None for a stock
    engine, which boots with the version's own.
    """
    return serve_arguments(
        version,
        request.method,
        request.drafter,
        request.engine_args,
        method_settings(request, version.plan.max_draft_length),
        table,
    )


def plain_arguments(request: RunRequest) -> list[str]:
    """An engine without speculation; its graphs are left to vLLM."""
    return ["--max-num-seqs", str(request.max_num_seqs), *request.engine_args]
