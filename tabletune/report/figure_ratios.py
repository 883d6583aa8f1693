"""Forest plot: throughput of the table over each other policy, with intervals."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from tabletune.records.verdict import Ratio, Verdict
from tabletune.report.canvas import SMALL, Canvas
from tabletune.report.policies import Policy, best_fixed, in_order, limit, standing
from tabletune.report.report_input import ReportInput
from tabletune.report.theme import Palette

NAME = "ratios"
_ROW_IN = 0.225
_HIGHEST = 1.25  # the verdict is decided near 1; what is beyond is drawn as an arrow
_LOWEST = 0.7
_TICKS = (0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)


def missing(report: ReportInput) -> str:
    """Why there is nothing to draw; empty when there is."""
    if report.verdict is None:
        return "The table has not been validated: no throughput was measured."
    if not report.verdict.ratios:
        return "The verdict holds no throughput ratios."
    return ""


def describe(report: ReportInput) -> str:
    """The figure in a sentence, for readers who cannot see it."""
    ratios = report.verdict.ratios if report.verdict else ()
    if not ratios:
        return ""
    worst, best = min(r.ratio for r in ratios), max(r.ratio for r in ratios)
    return (
        f"Throughput ratios of this table over every other policy at every concurrency, with "
        f"intervals: from {worst:.2f} to {best:.2f}. The numbers are in the table below."
    )


def draw(report: ReportInput, palette: Palette, narrow: bool) -> Figure:
    """One panel per concurrency: side by side when wide, stacked when narrow."""
    verdict = report.verdict
    assert verdict is not None  # `missing` was asked first
    loads = sorted({ratio.concurrency for ratio in verdict.ratios})
    policies = in_order(ratio.policy for ratio in verdict.ratios)
    per_row = 1 if narrow else min(len(loads), 4)
    rows = -(-len(loads) // per_row)
    panel_in = _ROW_IN * len(policies) + 0.1
    row_in = panel_in + 0.62
    percent = f"{verdict.margins.confidence:.0%}"
    canvas = Canvas(
        palette, narrow, row_in * rows + 0.12,
        "Measured throughput: this table over each other policy",
        f"ratio of output tok/s with {percent} interval; above 1 this table is faster; orange "
        "marks: least ratio that passes; bold: best fixed length" + _hints(verdict),
    )  # fmt: skip
    low, high = _limits(verdict)
    gap, left = 0.2, 1.42
    width = (canvas.width_in - left - 0.05 - gap * (per_row - 1)) / per_row
    for number, load in enumerate(loads):
        row, column = divmod(number, per_row)
        start = left + column * (width + gap)
        bottom = row_in * (rows - 1 - row) + 0.34
        axes = canvas.axes(start, bottom, canvas.width_in - start - width, panel_in)
        canvas.write(
            start, bottom + panel_in + 0.07, f"concurrency {load}", SMALL + 0.5, "ink", "bold"
        )
        _panel(canvas, axes, verdict, load, policies, (low, high), width)
        if column == 0:
            for place, policy in enumerate(policies):
                y = bottom + panel_in - 0.05 - _ROW_IN * (place + 0.5) - 0.04
                canvas.write(0.0, y, policy.label, SMALL + 0.5, "ink")
    return canvas.figure


def _panel(
    canvas: Canvas,
    axes: Axes,
    verdict: Verdict,
    load: int,
    policies: list[Policy],
    limits: tuple[float, float],
    width_in: float,
) -> None:
    palette = canvas.palette
    count = len(policies)
    room = 0.36 / width_in  # the value stands right of the plot
    stretch = (limits[1] / limits[0]) ** (1 / (1 - room))
    axes.set_xscale("log")
    axes.set_xlim(limits[0], limits[0] * stretch)
    axes.set_ylim(count - 0.5 + 0.05 / _ROW_IN, -0.5 - 0.05 / _ROW_IN)
    axes.set_yticks([])
    ticks = _ticks(limits, width_in - 0.36)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.spines["bottom"].set_visible(False)
    axes.axvline(1.0, color=palette["muted"], linewidth=0.9, zorder=1)
    by_policy = {r.policy: r for r in verdict.ratios if r.concurrency == load}
    for place, policy in enumerate(policies):
        axes.axhline(place + 0.5, color=palette["rule"], linewidth=0.5, zorder=0)
        ratio = by_policy.get(policy.name)
        if ratio is None:
            canvas.label(axes, 1.0, place, "not measured", "muted", SMALL - 0.5, shift_pt=(4, 0))
            continue
        _row(canvas, axes, verdict, ratio, place, limits)


def _row(
    canvas: Canvas,
    axes: Axes,
    verdict: Verdict,
    ratio: Ratio,
    place: int,
    limits: tuple[float, float],
) -> None:
    palette = canvas.palette
    least = limit(verdict.margins, ratio)
    failed = least is not None and ratio.ratio < least
    clear = standing(verdict.margins, ratio) != "unclear"
    colour = palette["fail" if failed else "ink"]
    low, high = max(ratio.low, limits[0]), min(ratio.high, limits[1])
    if high > low:
        axes.plot([low, high], [place, place], color=colour, linewidth=1.4, zorder=3,
                  solid_capstyle="butt")  # fmt: skip
    shown = min(max(ratio.ratio, limits[0]), limits[1])
    marker = "o" if shown == ratio.ratio else ">" if ratio.ratio > shown else "<"
    axes.plot([shown], [place], marker, markersize=4.4, markeredgecolor=colour, markeredgewidth=1,
              markerfacecolor=colour if clear else palette["paper"], zorder=4)  # fmt: skip
    if least is not None:
        axes.plot([least, least], [place - 0.36, place + 0.36], color=palette["fail"],
                  linewidth=1.3, zorder=2, solid_capstyle="butt")  # fmt: skip
    text_at = axes.get_xlim()[1]
    weight = "bold" if ratio == best_fixed(verdict, ratio.concurrency) else "normal"
    canvas.label(axes, text_at, place, f"{ratio.ratio:.2f}", "fail" if failed else "ink",
                 SMALL, weight, "right")  # fmt: skip


def _limits(verdict: Verdict) -> tuple[float, float]:
    least = [value for r in verdict.ratios if (value := limit(verdict.margins, r)) is not None]
    lows = [r.low or r.ratio for r in verdict.ratios if (r.low or r.ratio) > 0]
    low = min([*lows, *least, 0.95])
    high = max([r.high for r in verdict.ratios] + [1.05])
    return max(low / 1.01, _LOWEST), min(high * 1.01, _HIGHEST)


def _hints(verdict: Verdict) -> str:
    """What the marks that occur mean."""
    text = ""
    if any(standing(verdict.margins, ratio) == "unclear" for ratio in verdict.ratios):
        text += "; open circles: the interval spans the mark"
    if any(not _LOWEST <= ratio.ratio <= _HIGHEST for ratio in verdict.ratios):
        text += "; arrows: beyond the axis"
    return text


def _ticks(limits: tuple[float, float], inches: float) -> list[float]:
    """Ticks at least 0.3 inches apart, 1 always among them."""
    per_log = inches / math.log(limits[1] / limits[0])
    chosen = [1.0]
    for tick in sorted(_TICKS, key=lambda t: (-abs(math.log(t)), t)):
        near = any(abs(math.log(tick / other)) * per_log < 0.3 for other in chosen)
        if limits[0] <= tick <= limits[1] and not near:
            chosen.append(tick)
    return sorted(chosen)
