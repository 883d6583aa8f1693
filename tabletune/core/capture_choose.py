"""Choosing a capture plan: graph mode, capture sizes and draft lengths together."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby

from tabletune.core.capture_graphs import captured_graphs
from tabletune.core.capture_plan import CaptureCosts, CapturePlan, DroppedLength, PlanBudget
from tabletune.core.capture_predict import predict_graphs
from tabletune.core.capture_search import Demand, fewest_sizes
from tabletune.core.capture_settings import (
    GraphMode,
    GraphSettings,
    GraphSettingsError,
    Platform,
    Runner,
)

Plausible = Callable[[int, int], bool]
"""Whether a table might use draft length K at batch size b: (b, K) → bool."""

_PADDING_STEPS = (0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 1.0)
_MAX_CANDIDATES = 12


def choose_plan(
    max_num_seqs: int,
    candidate_lengths: Iterable[int],
    *,
    max_draft_length: int,
    version: str,
    runner: Runner,
    method: str,
    budget: PlanBudget | None = None,
    plausible: Plausible | None = None,
    platform: Platform = "gpu",
    mixed_steps: bool = False,
    length_values: Mapping[int, float] | None = None,
    costs: CaptureCosts | None = None,
    max_num_batched_tokens: int | None = None,
) -> CapturePlan:
    """Choose what to capture so that every plausible (b, K) has a graph at little padding.

    Where the budget does not allow that, padding is relaxed first (at most to
    `budget.max_padding_cost`), then the lengths of least value are dropped; both are noted. No
    plan is predicted to mismatch (capture_predict). If not even one length fits, the plan
    captures nothing. The plan's own `max_draft_length` is its longest length: dflash always
    drafts that many.

    Args:
        plausible: the pairs to cover; default all. K is chosen one step before it is verified,
            so a table needs b ± the change of the batch in one step at each of its edges.
        mixed_steps: also capture PIECEWISE graphs (FULL_AND_PIECEWISE), for steps in which a
            prefill joins; without, those run eager. Every pair is then covered, plausible or
            not, since an uncovered one could crash.
        length_values: what each length is worth; default: a length is worth its distance to
            the nearest one kept, in the logarithm of tokens per request.

    Raises:
        GraphSettingsError, UnsupportedEngineError: as GraphSettings.
    """
    lengths = tuple(sorted(set(candidate_lengths)))
    if len(lengths) > min(_MAX_CANDIDATES, max_num_seqs):
        raise GraphSettingsError(
            "candidate_lengths",
            f"at most {min(_MAX_CANDIDATES, max_num_seqs)} lengths (12, and one batch size each)",
            lengths,
            "leave some out",
        )
    settings = GraphSettings(
        graph_mode="NONE",
        capture_sizes=(),
        max_num_seqs=max_num_seqs,
        lengths=lengths,
        max_draft_length=max_draft_length,
        version=version,
        runner=runner,
        method=method,
        platform=platform,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    wanted = _wanted_pairs(settings, plausible)
    eager = CapturePlan(
        settings, predict_graphs(settings), wanted, budget or PlanBudget(), costs or CaptureCosts()
    )
    if platform == "cpu":
        return replace(eager, notes=("an engine on the CPU captures no graphs",))
    mode: GraphMode = "FULL_AND_PIECEWISE" if mixed_steps else "FULL_DECODE_ONLY"
    if runner == "v1":
        mode = "PIECEWISE"  # forced by vLLM under a table
    why_not = ""
    for equally_good in _by_loss(lengths, length_values):
        fits = [fit_lengths(eager, kept, mode) for kept in equally_good]
        plans = [plan for plan, _ in fits if plan is not None]
        if plans:
            best = min(plans, key=lambda plan: (plan.max_padding_cost, plan.graph_count))
            return _with_dropped(best, lengths, why_not)
        why_not = why_not or fits[0][1]
    return replace(eager, notes=(f"nothing is captured: {why_not}",))


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


def _wanted_pairs(
    settings: GraphSettings, plausible: Plausible | None
) -> frozenset[tuple[int, int]]:
    return frozenset(
        (b, k)
        for b in range(1, settings.max_num_seqs + 1)
        for k in settings.lengths
        if plausible is None or plausible(b, k)
    )


def _by_loss(
    lengths: tuple[int, ...], values: Mapping[int, float] | None
) -> Iterator[list[tuple[int, ...]]]:
    """All sets of lengths, fewest dropped first, then least loss of value; equal ones together."""

    def loss(kept: tuple[int, ...]) -> float:
        gone = set(lengths) - set(kept)
        if values is not None:
            return round(sum(values.get(k, 0.0) for k in gone), 9)
        return round(sum(min(abs(math.log((k + 1) / (j + 1))) for j in kept) for k in gone), 9)

    for size in range(len(lengths), 0, -1):
        for _, equal in groupby(sorted(combinations(lengths, size), key=loss), key=loss):
            yield list(equal)


def fit_lengths(
    eager: CapturePlan, lengths: tuple[int, ...], mode: GraphMode
) -> tuple[CapturePlan | None, str]:
    """The plan with the least padding that fits the budget, or why there is none."""
    limit, n = eager.budget.max_padding_cost, eager.max_num_seqs
    steps = [s for s in _PADDING_STEPS if s < limit] + [limit]
    base = plan_for(eager, "NONE", (), lengths, "")
    demand = demand_for(base, mode)
    size_cost = 1.0 if mode == "FULL_AND_PIECEWISE" else 0.0

    def sized(sizes: Sequence[int]) -> tuple[CapturePlan | None, str]:
        if not sizes:
            return None, f"no sizes cover every pair with at most {limit:.0%} of padding"
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


def _with_dropped(plan: CapturePlan, lengths: tuple[int, ...], reason: str) -> CapturePlan:
    dropped = tuple(
        DroppedLength(k, f"all of {lengths} would need too much ({reason})")
        for k in lengths
        if k not in plan.lengths
    )
    notes = tuple(f"draft length {d.draft_length} dropped: {d.reason}" for d in dropped)
    return replace(plan, dropped=dropped, notes=plan.notes + notes)
