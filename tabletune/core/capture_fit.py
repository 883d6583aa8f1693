"""Fitting capture sizes to one set of draft lengths and one graph mode, within a budget."""

from collections.abc import Sequence
from dataclasses import replace

from tabletune.core.capture_graphs import captured_graphs
from tabletune.core.capture_joining import joining_sizes
from tabletune.core.capture_plan import CapturePlan
from tabletune.core.capture_predict import predict_graphs
from tabletune.core.capture_search import Demand, fewest_sizes
from tabletune.core.capture_settings import GraphMode

_PADDING_STEPS = (0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 1.0)


def plan_for(
    base: CapturePlan, mode: GraphMode, sizes: Sequence[int], lengths: Sequence[int], note: str
) -> CapturePlan:
    """The plan with these settings and everything else as in `base`."""
    kept = set(lengths)
    settings = replace(
        base.settings,
        graph_mode=mode,
        capture_sizes=tuple(sorted(set(sizes))),
        lengths=tuple(sorted(kept)),
        max_draft_length=max(1, *kept),
    )
    wanted = frozenset((b, k) for b, k in base.wanted if k in kept)
    return replace(
        base,
        settings=settings,
        prediction=predict_graphs(settings),
        wanted=wanted,
        notes=(*base.notes, note) if note else base.notes,
    )


def fit_lengths(
    eager: CapturePlan, lengths: tuple[int, ...], mode: GraphMode
) -> tuple[CapturePlan | None, str]:
    """The plan with the least padding that fits the budget, or why there is none.

    Sizes for joining prompts come before less padding, but cost no length.
    """
    extra = _joining(eager, lengths, mode)
    plan, reason = _fit_sizes(eager, lengths, mode, extra)
    if not extra:
        return plan, reason
    if plan is None:
        plan, why_not = _fit_sizes(eager, lengths, mode, ())
        if plan is None:
            return None, why_not
        note = f"no sizes for steps in which prompts join: {reason}"
    else:
        more = extra[-1] - eager.max_num_seqs * (max(lengths) + 1)
        note = (
            f"sizes {', '.join(map(str, extra))} are for steps in which prompts join: up to "
            f"{more} tokens more than the widest decode step"
        )
    return replace(plan, notes=(*plan.notes, note)), ""


def _joining(eager: CapturePlan, lengths: tuple[int, ...], mode: GraphMode) -> tuple[int, ...]:
    """Sizes for joining prompts, where the mode captures graphs that such a step can use."""
    if mode not in ("PIECEWISE", "FULL_AND_PIECEWISE"):
        return ()
    return joining_sizes(
        eager.max_num_seqs * (max(lengths) + 1),
        eager.joining_tok,
        eager.budget.max_padding_cost,
        eager.settings.max_num_batched_tokens,
    )


def _fit_sizes(
    eager: CapturePlan, lengths: tuple[int, ...], mode: GraphMode, extra: tuple[int, ...]
) -> tuple[CapturePlan | None, str]:
    """The plan with the least padding of decode steps that fits the budget with `extra` sizes."""
    limit, n = eager.budget.max_padding_cost, eager.max_num_seqs
    steps = [s for s in _PADDING_STEPS if s < limit] + [limit]
    base = plan_for(eager, "NONE", (), lengths, "")
    demand = demand_for(base, mode)
    size_cost = 1.0 if mode == "FULL_AND_PIECEWISE" else 0.0

    def sized(sizes: Sequence[int]) -> tuple[CapturePlan | None, str]:
        if not sizes:
            return None, f"no sizes cover every pair with at most {limit:.0%} of padding"
        sizes = [*sizes, *extra]
        # The cheap limits first: a prediction of every pair takes far longer.
        if len(sizes) > eager.budget.max_capture_sizes:
            allowed = eager.budget.max_capture_sizes
            return None, f"{len(sizes)} capture sizes, {allowed} allowed"
        graphs = len(captured_graphs(mode, sizes, n, (k + 1 for k in lengths), max(lengths) + 1))
        if graphs > eager.budget.max_graphs:
            return None, f"{graphs} graphs, {eager.budget.max_graphs} allowed"
        plan = plan_for(base, mode, sizes, lengths, "")
        missing = set(plan.prediction.uncovered)
        if mode != "FULL_AND_PIECEWISE":
            missing &= plan.wanted
        if missing or plan.prediction.mismatches:
            return None, "no capture sizes cover every wanted pair"
        reason = plan.over_budget()
        return (plan, "") if reason is None else (None, reason)

    plan, reason = sized(fewest_sizes(demand, limit, size_cost))
    if plan is None:
        return None, reason
    exact = {b * q for q, wanted in demand.batch_sizes.items() for b in wanted} | {n}
    for sizes in (exact, *(fewest_sizes(demand, step, size_cost) for step in steps)):
        finer, _ = sized(sorted(sizes))
        if finer is not None:
            plan = finer
            break
    cost = plan.max_padding_cost
    note = "every wanted pair has its exact graph"
    if cost > 0:
        note = f"padding relaxed to at most {cost:.1%} of step time to fit the budget"
    return replace(plan, notes=(*plan.notes, note)), ""


def demand_for(plan: CapturePlan, mode: GraphMode) -> Demand:
    """What the search has to cover for this plan's wanted pairs in this mode."""
    settings = plan.settings
    n, pairs = settings.max_num_seqs, plan.wanted
    if mode == "FULL_AND_PIECEWISE":
        pairs = frozenset((b, k) for b in range(1, n + 1) for k in settings.lengths)
    top = n * (settings.max_draft_length + 1)
    if settings.max_num_batched_tokens is not None:
        top = min(top, settings.max_num_batched_tokens)
    if mode == "PIECEWISE":
        tokens = {b * (k + 1) for b, k in pairs} | {b for b, k in pairs if k > 1}
        return Demand(top, {1: sorted(tokens)}, 0, top)
    batch_sizes = {k + 1: {b for b, j in pairs if j == k} for k in settings.lengths}
    if settings.method == "dflash":
        # It always queries the longest length, whatever K the table says.
        batch_sizes[max(settings.lengths) + 1] |= {b for b, k in pairs if k > 0}
    autoregressive = settings.method in ("eagle", "eagle3", "mtp")
    rest = max((b for b, k in pairs if k > 1), default=0) if autoregressive else 0
    return Demand(n, {q: sorted(b) for q, b in batch_sizes.items()}, rest, top)
