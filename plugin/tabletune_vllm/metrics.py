"""The figures behind the Prometheus metrics, from the engine core, as plain values."""

from collections.abc import Mapping
from typing import Any, cast

from tabletune_vllm import __version__
from tabletune_vllm.runtime import Runtime


def figures(runtime: Runtime) -> dict[str, object]:
    """Everything the metrics page tells of one engine; small, and cheap for the engine."""
    # As any call of an endpoint: the step it falls into is no step time.
    runtime.observer.disturbed = True
    live = runtime.live_status
    controller = cast(Mapping[str, Any], {} if live is None else live())
    state = cast(Mapping[str, Any], controller.get("state") or {})
    exploration = cast(Mapping[str, Any], state.get("exploration") or {})
    size = runtime.facts.max_num_seqs
    return {
        "plugin_version": __version__,
        "run_id": runtime.facts.run_id,
        "model": runtime.facts.model,
        "active": runtime.active,
        "mode": str(controller.get("mode", "none")),
        "channel": str(controller.get("channel", "")),
        "version": str(controller.get("version") or "")[:12],
        "steps": runtime.observer.ring.next,
        "swaps": runtime.swaps,
        "suspended": runtime.suspended is not None,
        "refusals": int(controller.get("refusals", 0)),
        "decisions": dict(cast(Mapping[str, int], controller.get("decisions_by_kind") or {})),
        "survival": list(cast(list[float], state.get("survival") or [])),
        "explored_s": float(exploration.get("spent_s", 0.0)),
        "draft_lengths": [[b, runtime.table[b]] for b in batch_sizes(size)],
    }


def inactive(version: str, reason: str) -> dict[str, object]:
    """The figures of an engine that is left alone."""
    return {"plugin_version": version, "active": False, "reason": reason}


def batch_sizes(max_num_seqs: int) -> list[int]:
    """The batch sizes that the metrics tell the draft length of: powers of two, and the last.

    They never change while an engine serves, unlike the edges of its table, so that the number
    of time series stays what it is.
    """
    sizes = [1 << exponent for exponent in range(max_num_seqs.bit_length())]
    return [*sizes, *([] if sizes[-1] == max_num_seqs else [max_num_seqs])]
