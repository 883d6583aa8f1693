"""Predicted goodput by draft length over batch size, with the table's choice."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tabletune.report.batch_axis import edge_before, powers_up_to, set_log_axis
from tabletune.report.canvas import SMALL, Canvas
from tabletune.report.report_input import FloatArray, ReportInput
from tabletune.report.spread import spread
from tabletune.report.theme import Palette

NAME = "goodput"


def missing(report: ReportInput) -> str:
    """Why there is nothing to draw; empty when there is."""
    grid = report.predicted_goodput_tok_s
    if grid is None or not np.isfinite(grid).any():
        return (
            "No goodput could be predicted: that takes step times and acceptance, and one of "
            "them is missing."
        )
    return ""


def describe(report: ReportInput) -> str:
    """The figure in a sentence, for readers who cannot see it."""
    return (
        "Predicted goodput of each draft length over batch size, in tokens per second and as a "
        "share of the best length, with the length that the table chooses drawn as a band. The "
        "numbers are in the table below."
    )


def draw(report: ReportInput, palette: Palette, narrow: bool) -> Figure:
    """Above: share of the best length, where the choice is made; below: tok/s."""
    grid = report.predicted_goodput_tok_s
    assert grid is not None  # `missing` was asked first
    sizes = np.array(report.batch_sizes, dtype=np.float64)
    share_in, absolute_in = (2.5, 1.9) if narrow else (2.7, 2.2)
    canvas = Canvas(
        palette, narrow, share_in + absolute_in + 1.32, "Predicted goodput by draft length",
        "b · E(K) / T(b, K); band: the table's choice; uprights: the table's edges"
        + ("; dots: measured batch sizes" if report.profile else ""),
    )  # fmt: skip
    right = 0.62 if narrow else 0.8
    lower = canvas.axes(0.62, 0.52, right, absolute_in)
    upper = canvas.axes(0.62, 0.52 + absolute_in + 0.5, right, share_in)
    canvas.write(0.0, 0.52 + absolute_in + 0.12, "tok/s", SMALL + 0.5, "muted")
    canvas.write(0.0, 0.52 + absolute_in + 0.5 + share_in + 0.1,
                 "% of the best length at that batch size", SMALL + 0.5, "muted")  # fmt: skip
    with np.errstate(all="ignore"):
        best = np.nanmax(np.where(np.isfinite(grid), grid, -np.inf), axis=1)
    best = np.where(np.isfinite(best), best, np.nan)
    share = 100.0 * grid / best[:, None]
    floor = max(0.0, np.floor((np.nanmin(share) - 2) / 10) * 10)
    _panel(canvas, upper, report, sizes, share, (max(floor, 60.0), 101.5), share_in)
    _panel(canvas, lower, report, sizes, grid, (0.0, float(np.nanmax(grid)) * 1.06), absolute_in)
    upper.set_xticklabels([])
    upper.yaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    lower.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    canvas.axis_label(lower, "batch size (requests per engine step)")
    return canvas.figure


def _panel(
    canvas: Canvas,
    axes: Axes,
    report: ReportInput,
    sizes: FloatArray,
    values: FloatArray,
    limits: tuple[float, float],
    height_in: float,
) -> None:
    canvas.grid(axes)
    last = int(sizes[-1])
    set_log_axis(
        axes, 0.93 * sizes[0], sizes[-1] * 1.04, [t for t in powers_up_to(last) if t >= sizes[0]]
    )
    axes.set_ylim(*limits)
    ends: list[tuple[int, float, float]] = []
    measured = _measured(report)
    for length in range(values.shape[1]):
        known = np.isfinite(values[:, length])
        if not known.any():
            continue
        axes.plot(sizes[known], values[known, length], color=canvas.palette[f"k{length}"],
                  linewidth=1.5, zorder=3)  # fmt: skip
        at = known & np.isin(sizes, list(measured.get(length, ())))
        axes.plot(sizes[at], values[at, length], "o", color=canvas.palette[f"k{length}"],
                  markersize=3.2, markeredgewidth=0, zorder=4)  # fmt: skip
        x, y = sizes[known][-1], values[known, length][-1]
        if limits[0] <= y <= limits[1]:
            ends.append((length, float(x), float(y)))
    _choice(canvas, axes, report, sizes, values)
    gap = (limits[1] - limits[0]) * 0.15 / height_in
    places = spread([end[2] for end in ends], gap, *limits)
    for (length, _, _), y in zip(ends, places, strict=True):
        canvas.label(axes, sizes[-1] * 1.04, y, f"K = {length}", f"k{length}", SMALL + 0.5, "bold",
                     shift_pt=(4, 0))  # fmt: skip


def _measured(report: ReportInput) -> dict[int, set[int]]:
    """The batch sizes whose step time was measured, by draft length."""
    found: dict[int, set[int]] = {}
    for cell in report.profile.cells if report.profile else ():
        if cell.status == "measured":
            found.setdefault(cell.draft_length, set()).add(cell.batch_size)
    return found


def _choice(
    canvas: Canvas, axes: Axes, report: ReportInput, sizes: FloatArray, values: FloatArray
) -> None:
    table = report.table
    if table is None:
        return
    for part in table.ranges:
        if part.first > 1:
            axes.axvline(edge_before(part.first), color=canvas.palette["muted"], linewidth=0.8)
        length = part.draft_length
        if length >= values.shape[1]:
            continue
        inside = (sizes >= part.first) & (sizes <= part.last) & np.isfinite(values[:, length])
        axes.plot(
            sizes[inside],
            values[inside, length],
            linewidth=8,
            alpha=0.28,
            color=canvas.palette[f"k{length}"],
            marker="o" if inside.sum() == 1 else "",
            markersize=8,
            markeredgewidth=0,
            solid_capstyle="round",
            zorder=2,
        )
