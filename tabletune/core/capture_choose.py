"""Choosing a capture plan: graph mode, capture sizes and draft lengths together."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, groupby

from tabletune.core.capture_fit import fit_lengths
from tabletune.core.capture_joining import DEFAULT_JOINING_TOK
from tabletune.core.capture_plan import CaptureCosts, CapturePlan, DroppedLength, PlanBudget
from tabletune.core.capture_predict import predict_graphs
from tabletune.core.capture_settings import (
    GraphMode,
    GraphSettings,
    GraphSettingsError,
    Platform,
    Runner,
)

Plausible = Callable[[int, int], bool]
"""Whether a table might use draft length K at batch size b: (b, K) → bool."""

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
    joining_tok: int | None = None,
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
        joining_tok: with `mixed_steps`, the tokens of prompts in one step for which sizes beyond
            `max_num_seqs`·(K + 1) are captured, as far as the budget allows; 0 for none, None
            for `DEFAULT_JOINING_TOK` (see capture_joining).
        length_values: what each length is worth; default: a length is worth its distance to
            the nearest one kept, in the logarithm of tokens per request.

    Raises:
        GraphSettingsError, UnsupportedEngineError: as GraphSettings.
    """
    lengths = tuple(sorted(set(candidate_lengths)))
    joining_tok = DEFAULT_JOINING_TOK if joining_tok is None else joining_tok
    if joining_tok < 0:
        raise GraphSettingsError(
            "joining_tok", "0 or more tokens", joining_tok, "0 captures nothing for prompts"
        )
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
        settings,
        predict_graphs(settings),
        wanted,
        budget or PlanBudget(),
        costs or CaptureCosts(),
        joining_tok if mixed_steps else 0,
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


def _with_dropped(plan: CapturePlan, lengths: tuple[int, ...], reason: str) -> CapturePlan:
    dropped = tuple(
        DroppedLength(k, f"all of {lengths} would need too much ({reason})")
        for k in lengths
        if k not in plan.lengths
    )
    notes = tuple(f"draft length {d.draft_length} dropped: {d.reason}" for d in dropped)
    return replace(plan, dropped=dropped, notes=plan.notes + notes)
