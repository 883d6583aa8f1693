"""Heat map of step times over batch size and draft length."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tabletune.report.canvas import SMALL, Canvas
from tabletune.report.report_input import ReportInput
from tabletune.report.step_times import CellTime, cell_times
from tabletune.report.text import milliseconds
from tabletune.report.theme import HEAT_LEVELS, Palette

NAME = "step_time"
_WIDE_COLUMNS = 18  # more batch sizes than this leave no room for numbers side by side


def missing(report: ReportInput) -> str:
    """Why there is nothing to draw; empty when there is."""
    if report.profile is None:
        return "No step times were measured."
    if not report.profile.batch_sizes:
        return "The profile holds no usable cell."
    return ""


def describe(report: ReportInput) -> str:
    """The figure in a sentence, for readers who cannot see it."""
    if report.profile is None:
        return ""
    times = [c.step_time_s for c in cell_times(report.profile).values() if c.step_time_s]
    if not times:
        return ""
    return (
        f"Step time by batch size and draft length, from {milliseconds(min(times))} to "
        f"{milliseconds(max(times))} ms. The numbers are in the table below."
    )


def draw(report: ReportInput, palette: Palette, narrow: bool) -> Figure:
    """Batch sizes across and lengths down when wide; the other way round when narrow."""
    assert report.profile is not None  # `missing` was asked first
    cells = cell_times(report.profile)
    sizes = sorted({b for b, _ in cells})
    lengths = sorted({k for _, k in cells})
    unused = any(c.state != "good" for c in cells.values())
    subtitle = "ms per engine step; the stronger the colour, the slower" + (
        "; hatched: uncertain or not usable" if unused else ""
    )
    across, down = (lengths, sizes) if narrow else (sizes, lengths)
    row_in = 0.27 if narrow else 0.36
    if len(sizes) > 40 and narrow:
        row_in = 0.16
    canvas = Canvas(palette, narrow, row_in * len(down) + 0.62, "Step time T(b, K)", subtitle)
    axes = canvas.axes(0.55, 0.5, 0.06, row_in * len(down))
    axes.set_xlim(-0.5, len(across) - 0.5)
    axes.set_ylim(len(down) - 0.5, -0.5)
    axes.spines["bottom"].set_visible(False)
    names = [[str(k) if narrow else f"K = {k}" for k in lengths], [str(b) for b in sizes]]
    columns, rows = names if narrow else names[::-1]
    step = 1 if narrow else max(1, math.ceil(len(across) / 24))
    axes.set_xticks(range(0, len(across), step), columns[::step])
    axes.set_yticks(range(len(down)), rows)
    canvas.axis_label(axes, "draft length K" if narrow else "batch size (requests per engine step)")
    if narrow:
        canvas.write(0.0, 0.5 + row_in * len(down) + 0.05, "batch size", SMALL, "muted")
    numbers = narrow or len(sizes) <= _WIDE_COLUMNS
    levels = _levels(list(cells.values()))
    for column, x in enumerate(across):
        for row, y in enumerate(down):
            cell = cells.get((y, x) if narrow else (x, y))
            _cell(canvas, axes, (column, row), cell, levels, numbers and row_in > 0.2)
    return canvas.figure


def _levels(cells: list[CellTime]) -> tuple[float, float]:
    times = [math.log(c.step_time_s) for c in cells if c.step_time_s]
    low, high = min(times), max(times)
    return low, max(high, low + 1e-9)


def _cell(
    canvas: Canvas,
    axes: Axes,
    at: tuple[int, int],
    cell: CellTime | None,
    levels: tuple[float, float],
    numbers: bool,
) -> None:
    palette, (column, row) = canvas.palette, at
    face, text_colour, text, hatch = "paper", "muted", "", None
    if cell is None or cell.step_time_s is None:
        hatch = "////"
    else:
        share = (math.log(cell.step_time_s) - levels[0]) / (levels[1] - levels[0])
        face = f"h{min(HEAT_LEVELS - 1, int(share * HEAT_LEVELS))}"
        text_colour, text = f"{face}-on", milliseconds(cell.step_time_s)
        hatch = "////" if cell.state == "uncertain" else None
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=palette[face],
                             edgecolor=palette["paper"], linewidth=1.6))  # fmt: skip
    if hatch:
        axes.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, facecolor="none",
                                 edgecolor=palette[text_colour], linewidth=0,
                                 hatch=hatch))  # fmt: skip
    if numbers and text:
        # A hatched cell keeps its number readable on a plain patch.
        canvas.label(axes, column, row, text, text_colour, SMALL, ha="center",
                     patch=face if hatch else "")  # fmt: skip
