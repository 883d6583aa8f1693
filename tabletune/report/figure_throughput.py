"""Measured throughput over concurrency, one line per policy: in total and per open request."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tabletune.records.verdict import Verdict
from tabletune.report.batch_axis import set_log_axis
from tabletune.report.canvas import SMALL, Canvas
from tabletune.report.policies import Policy, in_order, mean_tok_s, read_policy
from tabletune.report.report_input import ReportInput
from tabletune.report.spread import spread
from tabletune.report.theme import Palette

NAME = "throughput"
_PLOT_IN = 2.9
_LABELS_IN = 1.08
#: Repetitions of this table with another instrument or engine: they are in the numbers.
_NOT_DRAWN = ("stock", "candidate_by_metrics", "off_by_metrics")


def missing(report: ReportInput) -> str:
    """Why there is nothing to draw; empty when there is."""
    if report.verdict is None:
        return "The table has not been validated: no throughput was measured."
    if all(read_policy(name).kind in _NOT_DRAWN for name, _ in mean_tok_s(report.verdict)):
        return "The verdict holds no measured throughput."
    return ""


def describe(report: ReportInput) -> str:
    """The figure in a sentence, for readers who cannot see it."""
    if report.verdict is None:
        return ""
    means = mean_tok_s(report.verdict)
    return (
        f"Mean output throughput of {len({p for p, _ in means})} policies at "
        f"{len({c for _, c in means})} concurrencies. The numbers are in the table below."
    )


def draw(report: ReportInput, palette: Palette, narrow: bool) -> Figure:
    """Two panels, side by side when wide: per request shows low loads, total shows high ones."""
    verdict = report.verdict
    assert verdict is not None  # `missing` was asked first
    height = (2 * _PLOT_IN + 1.5) if narrow else _PLOT_IN + 0.8
    canvas = Canvas(
        palette, narrow, height, "Measured throughput by load",
        "mean output tok/s over all windows, closed loop; dots: single windows of this table",
    )  # fmt: skip
    half = 0.0 if narrow else canvas.width_in / 2
    rest = 0.0 if narrow else canvas.width_in / 2 + 0.1
    upper = 0.55 + (_PLOT_IN + 0.7 if narrow else 0.0)
    per_request = canvas.axes(0.58, upper, rest + _LABELS_IN, _PLOT_IN)
    total = canvas.axes(half + 0.68, 0.55, _LABELS_IN, _PLOT_IN)
    canvas.write(0.0, upper + _PLOT_IN + 0.1, "tok/s per open request", SMALL + 0.5, "muted")
    canvas.write(
        half + 0.1 if half else 0.0, 0.55 + _PLOT_IN + 0.1, "tok/s in total", SMALL + 0.5, "muted"
    )
    _panel(canvas, per_request, verdict, per_open_request=True)
    _panel(canvas, total, verdict, per_open_request=False)
    return canvas.figure


@dataclass(frozen=True)
class _End:
    """Where a line ends, and its label's colour."""

    policy: Policy
    y: float
    colour: str


def _panel(canvas: Canvas, axes: Axes, verdict: Verdict, per_open_request: bool) -> None:
    means = {
        key: value
        for key, value in mean_tok_s(verdict).items()
        if read_policy(key[0]).kind not in _NOT_DRAWN
    }
    loads = sorted({load for _, load in means})
    share = {load: 1 / load if per_open_request else 1.0 for load in loads}
    canvas.grid(axes)
    right = loads[-1] * 1.06
    set_log_axis(axes, loads[0] / 1.12, right, loads)
    top = 1.06 * max(value * share[load] for (_, load), value in means.items())
    axes.set_ylim(0, top)
    axes.yaxis.set_major_formatter(
        lambda value, _: f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"
    )
    canvas.axis_label(axes, "concurrency (open client requests)")
    policies = in_order(name for name, _ in means)
    ends: list[_End] = []
    for policy in reversed(policies):
        points = [(c, means[policy.name, c] * share[c]) for c in loads if (policy.name, c) in means]
        style = _style(policy)
        axes.plot([x for x, _ in points], [y for _, y in points], markeredgewidth=0,
                  color=canvas.palette[style.colour], linewidth=style.width, linestyle=style.dashes,
                  marker="o", markersize=2.6 if style.width < 2 else 0)  # fmt: skip
        ends.append(_End(policy, points[-1][1], style.colour))
    for item in verdict.measured:
        if item.policy in {policy.name for policy in policies if policy.kind == "candidate"}:
            ys = [value * share[item.concurrency] for value in item.windows_tok_s]
            axes.plot([item.concurrency] * len(ys), ys, "o", markersize=3.4, markeredgewidth=0.7,
                      color=canvas.palette["ink"], zorder=5,
                      markeredgecolor=canvas.palette["paper"])  # fmt: skip
    gap = top * 0.15 / _PLOT_IN
    for end, y in zip(ends, spread([end.y for end in ends], gap, 0, top), strict=True):
        weight = "bold" if end.policy.kind == "candidate" else "normal"
        canvas.label(
            axes, right, y, end.policy.short_label, end.colour, SMALL, weight, shift_pt=(4, 0)
        )


@dataclass(frozen=True)
class _Style:
    """How a policy's line looks."""

    colour: str
    width: float
    dashes: Any


def _style(policy: Policy) -> _Style:
    if policy.kind == "candidate":
        return _Style("ink", 2.4, "-")
    if policy.kind == "fixed":
        return _Style(f"k{policy.draft_length}", 1.3, "-")
    if policy.kind == "incumbent":
        return _Style("ink", 1.3, (0, (1, 1.4)))
    return _Style("muted", 1.3, (0, (4, 2)))
