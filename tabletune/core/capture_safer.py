"""The next safer plans to try when an engine with a capture plan fails its qualification."""

from dataclasses import dataclass

from tabletune.core.capture_fit import fit_lengths, plan_for
from tabletune.core.capture_plan import CapturePlan


@dataclass(frozen=True)
class SaferPlan:
    """A plan to fall back to. `reason`: why it is safer, and what it costs."""

    plan: CapturePlan
    reason: str


def safer_plans(plan: CapturePlan) -> tuple[SaferPlan, ...]:
    """Plans to try instead of this one, the fastest expected first; empty after eager.

    None of them is predicted to mismatch, and all keep the plan's budget.
    """
    found: list[SaferPlan] = []
    if plan.graph_mode == "FULL_AND_PIECEWISE":
        found.append(
            SaferPlan(
                plan_for(plan, "FULL_DECODE_ONLY", plan.decode_sizes, plan.lengths, ""),
                "no PIECEWISE graph that a target could fall back to while its drafter replays "
                "a FULL one; steps with a prefill run eager",
            )
        )
    if plan.graph_mode in ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"):
        found += _nested_lengths(plan)
        found.append(
            SaferPlan(
                plan_for(plan, "PIECEWISE", plan.capture_sizes, plan.lengths, ""),
                "attention runs outside the graphs, so no graph depends on a request count; "
                "slower at small batches",
            )
        )
    if plan.graph_mode != "NONE":
        found.append(
            SaferPlan(
                plan_for(plan, "NONE", (), plan.lengths, ""),
                "no graphs at all: nothing to mismatch and no stall, but small batches run "
                "three to four times slower",
            )
        )
    return tuple(s for s in found if not s.plan.prediction.mismatches)


def _nested_lengths(plan: CapturePlan) -> list[SaferPlan]:
    """The lengths whose tokens per request are powers of two up to 8, if that drops any.

    Every size that is a multiple of eight is then a level of every length at once.
    """
    lengths = tuple(k for k in plan.lengths if k in (0, 1, 3, 7))
    if lengths == plan.lengths or len(lengths) < 2 or max(lengths) == 0:
        return []
    top = plan.max_num_seqs * (max(lengths) + 1)
    sizes = [1, 2, 4, *range(8, -(-top // 8) * 8 + 1, 8)]
    sizes += [plan.max_num_seqs * (k + 1) for k in lengths]
    safer = plan_for(plan, "FULL_DECODE_ONLY", sizes, lengths, "")
    if safer.over_budget() is not None or not safer.wanted <= safer.coverage:
        fitted, _ = fit_lengths(plan, lengths, "FULL_DECODE_ONLY")
        if fitted is None:
            return []
        safer = fitted
    return [
        SaferPlan(
            safer,
            f"only the draft lengths {lengths}: their graphs share token counts, so that the "
            "nearest one always fits, as in settings that ran without a stall",
        )
    ]
