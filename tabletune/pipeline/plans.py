"""Capture plans of a deployment: the planner's choice, the safer ones, and their padding."""

from collections.abc import Callable, Iterable

import numpy as np

from tabletune.core import capture
from tabletune.pipeline.joining import joining_tok
from tabletune.pipeline.request import RunRequest
from tabletune.records.evidence import graph_settings, runner_of
from tabletune.records.fingerprint import DeviceFacts, EngineFacts
from tabletune.records.plan import CapturePlan

_MAX_GRAPHS = 704  # 640 were captured in 22 s on one H200 with a 36-layer target


def choose_plans(
    request: RunRequest,
    device: DeviceFacts,
    engine: EngineFacts,
    lengths: Iterable[int],
    prompts_tok: int | None = None,
) -> list[CapturePlan]:
    """The plans to qualify, the fastest expected first.

    On a GPU the first also captures PIECEWISE graphs, for the steps in which a prefill joins
    decodes: without one such a step was seen to take three times as long. It is left out where
    it would cost a draft length that a plan without it keeps.

    Args:
        prompts_tok: tokens of prompts in one step for which that plan has sizes beyond the
            widest decode step; None for what the sample prompts make likely (joining.py).

    Raises:
        GraphSettingsError, UnsupportedEngineError: see core/capture_settings.py.
        PromptFileError: the file of prompts cannot be used.
    """
    wanted = tuple(lengths)
    on_cpu = device.platform == "cpu"
    joining = joining_tok(request, device) if prompts_tok is None and not on_cpu else prompts_tok

    def chosen(mixed_steps: bool) -> capture.CapturePlan:
        return capture.choose_plan(
            request.max_num_seqs,
            wanted,
            max_draft_length=request.max_draft_length,
            version=engine.version,
            runner=runner_of(engine),
            method=request.method,
            platform="cpu" if on_cpu else "gpu",
            mixed_steps=mixed_steps,
            joining_tok=joining,
            budget=capture.PlanBudget(max_graphs=_MAX_GRAPHS),
        )

    decode_only = chosen(False)
    plans: list[CapturePlan] = []
    if decode_only.graph_mode == "PIECEWISE":  # the V1 runner: every step has such graphs
        decode_only = chosen(True)
    if decode_only.graph_mode == "FULL_DECODE_ONLY":
        mixed = chosen(True)
        if mixed.graph_mode == "FULL_AND_PIECEWISE" and mixed.lengths == decode_only.lengths:
            plans.append(plan_record(mixed))
    plans.append(plan_record(decode_only))
    for safer in capture.safer_plans(decode_only):
        plans.append(plan_record(safer.plan, safer.reason))
    return plans


def plan_for_table(
    plan: CapturePlan,
    lengths: tuple[int, ...],
    engine: EngineFacts,
    device: DeviceFacts,
    method: str,
) -> CapturePlan:
    """The plan that an engine boots with when its table uses only `lengths`.

    vLLM captures graphs for the lengths in the table alone; the sizes stay as they are, and
    every pair of the lengths that are left keeps its graph.
    """
    settings = graph_settings(plan, lengths, engine, device, method)
    prediction = capture.predict_graphs(settings)
    return plan.model_copy(update={"lengths": lengths, "graph_count": prediction.graph_count})


def padding_grid(plan: CapturePlan, padded: Callable[[int, int], int | None] | None) -> np.ndarray:
    """float64[max_num_seqs, K_max + 1]: padded tokens, NaN where no graph fits."""
    grid = np.full((plan.max_num_seqs, plan.max_draft_length + 1), np.nan)
    if padded is None:
        return grid
    for batch_size in range(1, plan.max_num_seqs + 1):
        for length in plan.lengths:
            tokens = padded(batch_size, length)
            if tokens is not None:
                grid[batch_size - 1, length] = tokens
    return grid


def plan_record(plan: capture.CapturePlan, reason: str = "") -> CapturePlan:
    """The planner's plan as a record."""
    notes = [*([reason] if reason else []), *plan.notes]
    notes += [f"draft length {d.draft_length} left out: {d.reason}" for d in plan.dropped]
    return CapturePlan(
        graph_mode=plan.graph_mode,
        capture_sizes=plan.capture_sizes,
        lengths=plan.lengths,
        max_draft_length=plan.settings.max_draft_length,
        max_num_seqs=plan.max_num_seqs,
        graph_count=plan.graph_count,
        notes=tuple(notes),
    )
