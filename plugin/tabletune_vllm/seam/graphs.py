"""Which CUDA graphs the engine really captured, read from its model runner.

A part of the seam in a file of its own: it names the attributes of vLLM's executor, worker and
graph managers (vllm/v1/worker/gpu/cudagraph_utils.py, vllm/v1/cudagraph_dispatcher.py). It only
reads, and only when the worker lives in the engine core's process (one GPU).
"""

from typing import Any

from tabletune_vllm.observe import GRAPH_FULL, GRAPH_NONE, GRAPH_PIECEWISE

GRAPH_MODES = {"NONE": GRAPH_NONE, "PIECEWISE": GRAPH_PIECEWISE, "FULL": GRAPH_FULL}


def read_graphs(executor: Any, draft_lengths: list[int], max_num_seqs: int) -> dict[str, object]:
    """The captured graphs as plain values, or known: False with the reason. Never raises.

    graphs: rows [mode, tokens, requests | None, query length | None]; counts: graphs by mode;
    coverage (V2 runner only): per draft length, for each batch size from 1 on, the mode code
    and the padded tokens that the engine's own dispatch answers for a pure decode step.
    """
    try:
        return _read(executor, draft_lengths, max_num_seqs)
    except Exception as error:
        return _unknown(f"the model runner does not look as expected: {error!r}")


def _unknown(reason: str) -> dict[str, object]:
    return {"known": False, "reason": reason}


def _read(executor: Any, draft_lengths: list[int], max_num_seqs: int) -> dict[str, object]:
    wrapper = getattr(executor, "driver_worker", None)
    runner = getattr(getattr(wrapper, "worker", None), "model_runner", None)
    if runner is None:
        return _unknown("the workers run in other processes")
    if str(getattr(runner, "device", "")) == "cpu":
        return _unknown("the CPU runner captures no graphs")
    if hasattr(runner, "cudagraph_manager"):
        if runner.cudagraph_manager is None:
            return _unknown("the runner has no graph manager")
        return _read_v2(runner.cudagraph_manager, draft_lengths, max_num_seqs)
    return _read_v1(runner.cudagraph_dispatcher)


def _read_v2(manager: Any, draft_lengths: list[int], max_num_seqs: int) -> dict[str, object]:
    rows = [
        [d.cg_mode.name, d.num_tokens, d.num_reqs, d.uniform_token_count] for d in manager.graphs
    ]
    # Piecewise graphs are held by the compiled model, not by the manager.
    for mode, descriptors in manager._capture_descs.items():
        if mode.name == "PIECEWISE":
            rows.extend([mode.name, d.num_tokens, d.num_reqs, None] for d in descriptors)
    coverage: dict[str, object] = {}
    for length in draft_lengths:
        query = length + 1
        found = [
            manager.dispatch(b, b * query, query, 0, max_query_len=query)
            for b in range(1, max_num_seqs + 1)
        ]
        coverage[str(length)] = {
            "graph_mode": [GRAPH_MODES[d.cg_mode.name] for d in found],
            "padded_tokens": [d.num_tokens for d in found],
        }
    return {**_summary(rows), "coverage": coverage}


def _read_v1(dispatcher: Any) -> dict[str, object]:
    rows = [
        [mode.name, d.num_tokens, d.num_reqs, None]
        for mode, descriptors in dispatcher.cudagraph_keys.items()
        for d in descriptors
    ]
    return _summary(rows)


def _summary(rows: list[list[Any]]) -> dict[str, object]:
    rows.sort(key=lambda row: (row[0], row[1], row[2] or 0, row[3] or 0))
    counts: dict[str, int] = {}
    for row in rows:
        counts[row[0]] = counts.get(row[0], 0) + 1
    return {"known": True, "counts": counts, "graphs": rows}
