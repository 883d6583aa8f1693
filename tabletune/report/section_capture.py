"""Section 7: the capture plan, its coverage and its padding."""

import numpy as np

from tabletune.report.figure_capture import padding_share
from tabletune.report.markup import Html, details, join, tag
from tabletune.report.plots import DrawnPlots
from tabletune.report.report_input import ReportInput
from tabletune.report.text import listed, plural


def capture_section(report: ReportInput, plots: DrawnPlots) -> Html:
    """The plan in words, the lanes, and the sizes."""
    plan = report.plan
    parts: list[object] = []
    if plan is not None and plan.capture_sizes:
        lengths = listed([str(k) for k in plan.lengths])
        parts.append(
            tag(
                "p",
                f"Graph mode {plan.graph_mode}, {plural(len(plan.capture_sizes), 'capture size')} "
                f"up to {plan.capture_sizes[-1]:,} tokens, {plural(plan.graph_count, 'graph')}, "
                f"for draft lengths {lengths} and up to {plural(plan.max_num_seqs, 'request')}.",
            )
        )
        if plan.joining_sizes:
            widest = plan.max_num_seqs * (plan.max_draft_length + 1)
            sizes = listed([f"{size:,}" for size in plan.joining_sizes])
            parts.append(
                tag(
                    "p",
                    f"The widest decode step has {widest:,} tokens. The sizes above it, {sizes}, "
                    "are for steps in which prompts join.",
                )
            )
        parts.append(_coverage(report))
    parts.append(plots.element("capture"))
    if plan is not None and plan.notes:
        parts.append(tag("ul", *(tag("li", note) for note in plan.notes), class_="note"))
    if plan is not None and plan.capture_sizes:
        sizes = ", ".join(str(size) for size in plan.capture_sizes)
        parts.append(details("All capture sizes, in tokens", tag("p", sizes, class_="sizes")))
    return join(parts)


def _coverage(report: ReportInput) -> Html:
    share = padding_share(report)
    if share is None or report.table is None or report.plan is None:
        return Html("")
    dense = report.table.dense()
    used = np.array([
        share[b - 1, dense[b]]
        for b in range(1, min(len(dense), share.shape[0] + 1))
        if dense[b] < share.shape[1]
    ])  # fmt: skip
    holes = int(np.isnan(used).sum())
    if used.size == 0:
        return Html("")
    if holes:
        text = (
            f"At {plural(holes, 'batch size')} the table's choice has no graph and would run "
            "several times slower."
        )
        return tag("p", text, class_="warning")
    return tag(
        "p",
        "Every choice of the table runs as a captured graph, padded by "
        f"{100 * used.mean():.1f}% on average and {100 * used.max():.0f}% at most.",
    )
