"""Stage: plan captures and qualify the engine under them."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from tabletune.core.capture import compare_captured, predict_graphs
from tabletune.measure.qualify_fallback import (
    TOLERATED_STALLS,
    NothingQualified,
    qualify_with_fallback,
)
from tabletune.measure.qualify_result import QualificationResult
from tabletune.pipeline.plans import choose_plans
from tabletune.pipeline.qualify_plan import qualify_plan
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.session import LiveEngine
from tabletune.records.evidence import graph_settings
from tabletune.records.plan import CapturePlan
from tabletune.records.qualification import Qualification

GRAPH_FIELDS = ("mode", "num_tokens", "num_reqs", "uniform_token_count")


def stage_qualify(run: RunContext) -> tuple[CapturePlan, Qualification]:
    """The plan to boot with and what the engine may do under it.

    Raises:
        NothingQualified: no plan can be trusted; what was tried is kept as a record.
    """
    if not run.fresh:
        kept = run.workspace.load(run.identity, Qualification)
        plan = run.workspace.load(run.identity, CapturePlan)
        same = kept is not None and plan is not None and kept.plan == plan.content_hash
        if kept and plan and same and run.may_use(kept.qualified_at):
            run.progress.say(f"qualification of {kept.qualified_at} reused")
            return plan, kept
    fingerprint = run.target.fingerprint
    plans = choose_plans(
        run.request, fingerprint.device, fingerprint.engine, run.request.all_lengths
    )
    try:
        chosen = qualify_with_fallback(
            plans,
            lambda plan: _sacrificial(run, plan),
            lambda live, plan: _qualify(run, live, plan),
            run.progress,
        )
    except NothingQualified as error:
        record = error.record(run.identity, run.clock.utc())
        if record is not None:
            run.workspace.save(run.identity, record, "qualification-failed")
        raise
    record = chosen.record(run.identity, run.clock.utc())
    run.workspace.save(run.identity, chosen.plan)
    run.workspace.save(run.identity, record)
    for sentence in record.excluded:
        run.progress.say(f"excluded: {sentence}")
    return chosen.plan, record


@contextlib.contextmanager
def _sacrificial(run: RunContext, plan: CapturePlan) -> Iterator[LiveEngine]:
    """The measuring engine under `plan`.

    One that passed did nothing but serve requests, so it goes on as the measuring engine;
    one that failed is stopped.
    """
    live = run.session.measuring(plan)
    try:
        yield live
    except BaseException:
        run.session.stop_measuring()
        raise


def _qualify(run: RunContext, live: LiveEngine, plan: CapturePlan) -> QualificationResult:
    result = qualify_plan(
        run.request,
        live,
        plan,
        clock=run.clock,
        progress=run.progress,
        covered=_covered(run, live, plan),
    )
    _keep_steps(run, plan, result)
    if not result.passed or result.stalled_share > TOLERATED_STALLS:
        run.session.stop_measuring()
    return result


def _keep_steps(run: RunContext, plan: CapturePlan, result: QualificationResult) -> None:
    """Keep medians and slowest steps beside the records, for people and benchmarks."""
    steps = {
        "plan": plan.content_hash,
        "wall_time_s": round(result.wall_time_s, 1),
        "cells": [dataclasses.asdict(cell) for cell in result.cells],
        "slowest": [dataclasses.asdict(step) for step in result.slowest],
    }
    run.workspace.write_json(run.identity, "qualification-steps", steps)


def _covered(
    run: RunContext, live: LiveEngine, plan: CapturePlan
) -> frozenset[tuple[int, int]] | None:
    """The pairs with a graph: by what the engine captured, else by prediction; None for all."""
    fingerprint = run.target.fingerprint
    if fingerprint.device.platform == "cpu" or plan.graph_mode == "NONE":
        return None
    settings = graph_settings(
        plan, plan.lengths, fingerprint.engine, fingerprint.device, run.request.method
    )
    prediction = predict_graphs(settings)
    captured = live.api.graphs()
    if not captured.get("known"):
        reason = captured.get("reason", "the plugin does not say")
        run.progress.say(f"captured graphs could not be read back ({reason}); predicted ones hold")
        return prediction.coverage
    rows: list[list[Any]] = captured["graphs"]
    comparison = compare_captured(
        prediction, [dict(zip(GRAPH_FIELDS, row, strict=True)) for row in rows]
    )
    if comparison.agrees:
        run.progress.say(f"the engine captured its {prediction.graph_count} graphs as predicted")
    for difference in comparison.differences:
        run.progress.say(f"captured graphs differ from the prediction: {difference}")
    return comparison.coverage
