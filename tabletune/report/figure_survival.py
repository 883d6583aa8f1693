"""Survival by draft position, overall as bars and by prompt group as dots."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tabletune.core.counts import SurvivalCounts
from tabletune.core.survival import survival, survival_interval
from tabletune.records.acceptance import PositionCounts
from tabletune.report.canvas import SMALL, Canvas
from tabletune.report.report_input import ReportInput
from tabletune.report.spread import spread
from tabletune.report.theme import Palette

NAME = "survival"
_MOST_GROUPS = 6


def missing(report: ReportInput) -> str:
    """Why there is nothing to draw; empty when there is."""
    if report.prior is None:
        return "Acceptance was not measured."
    if not any(report.prior.counts.drafted_through):
        return "The drafter proposed nothing on the sample prompts, so there is no survival."
    return ""


def core_counts(counts: PositionCounts) -> SurvivalCounts:
    """The record's counts as the core takes them."""
    return SurvivalCounts(counts.drafted_through, counts.accepted_through, counts.request_steps)


def describe(report: ReportInput) -> str:
    """The figure in a sentence, for readers who cannot see it."""
    if report.prior is None:
        return ""
    values = survival(core_counts(report.prior.counts))
    text = ", ".join(f"{value:.2f}" for value in values)
    return f"Survival by draft position 1 to {len(values)}: {text}."


def draw(report: ReportInput, palette: Palette, narrow: bool) -> Figure:
    """Bars with 95% intervals; groups as lines that end in their names."""
    prior = report.prior
    assert prior is not None  # `missing` was asked first
    groups = {n: c for n, c in sorted(prior.by_group.items()) if any(c.drafted_through)}
    if len(groups) > _MOST_GROUPS:
        groups = {}
    counts = core_counts(prior.counts)
    values, intervals = survival(counts), survival_interval(counts)
    canvas = Canvas(
        palette, narrow, 3.1 if narrow else 3.3, "Survival by draft position",
        "share of drafts whose guesses 1 … i were all accepted; bars: all prompts, with 95% "
        "interval" + ("; dots: prompt groups" if groups else ""),
    )  # fmt: skip
    height = canvas.plot_height_in - 0.6
    axes = canvas.axes(0.42, 0.5, (0.98 if narrow else 1.5) if groups else 0.1, height)
    canvas.grid(axes)
    axes.set_xlim(0.55, len(values) + 0.4)
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "0.25", "0.5", "0.75", "1"])
    axes.set_xticks(range(1, len(values) + 1))
    canvas.axis_label(axes, "draft position i")
    for i, (value, (low, high)) in enumerate(zip(values, intervals, strict=True), start=1):
        axes.bar(i, value, width=0.62, color=palette["bar"], zorder=2)
        axes.plot([i, i], [low, high], color=palette["ink"], linewidth=1.3, zorder=4,
                  solid_capstyle="butt")  # fmt: skip
        canvas.label(axes, i - 0.27, 0, f"{value:.2f}", "ink", SMALL + 1, "bold",
                     va="bottom", shift_pt=(0, 4))  # fmt: skip
    _groups(canvas, axes, groups, height)
    return canvas.figure


def _groups(
    canvas: Canvas, axes: Axes, groups: dict[str, PositionCounts], height_in: float
) -> None:
    ends: list[tuple[str, int, float]] = []
    for place, (name, counts) in enumerate(groups.items()):
        values, bounds = survival(core_counts(counts)), survival_interval(core_counts(counts))
        shift = 0.05 + 0.05 * place
        xs = [i + shift for i in range(1, len(values) + 1)]
        axes.plot(xs, values, "o", color=canvas.palette["muted"], markersize=3.4, zorder=5,
                  markeredgewidth=0)  # fmt: skip
        axes.plot(xs, values, color=canvas.palette["muted"], linewidth=0.6, zorder=3, alpha=0.7)
        for x, (low, high) in zip(xs, bounds, strict=True):
            axes.plot([x, x], [low, high], color=canvas.palette["muted"], linewidth=0.8, zorder=4)
        ends.append((name, len(values), float(values[-1])))
    gap = 0.155 / height_in
    for (name, last, _), y in zip(ends, spread([end[2] for end in ends], gap, 0, 1), strict=True):
        shown = name if len(name) <= 16 else name[:15] + "…"
        canvas.label(axes, last + 0.4, y, shown, "muted", SMALL, shift_pt=(3, 0))
