"""The table as a strip: batch size from 1 to the largest, coloured by draft length."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tabletune.records.table import Table
from tabletune.report.batch_axis import edge_before, powers_up_to, set_log_axis
from tabletune.report.canvas import NORMAL, SMALL, Canvas
from tabletune.report.report_input import ReportInput
from tabletune.report.theme import Palette

NAME = "table"


def missing(report: ReportInput) -> str:
    """Why there is nothing to draw; empty when there is."""
    return "" if report.table else "No table came out of this run, so there is none to draw."


def describe(report: ReportInput) -> str:
    """The figure in a sentence, for readers who cannot see it."""
    table = report.table
    return "" if table is None else "Draft length by batch size: " + table_in_words(table) + "."


def table_in_words(table: Table) -> str:
    """Such as ``1–31: K = 3; 32–64: K = 0``."""
    return "; ".join(f"{span(p.first, p.last)}: K = {p.draft_length}" for p in table.ranges)


def span(first: int, last: int) -> str:
    """``7`` or ``7–12``."""
    return str(first) if first == last else f"{first}–{last}"


def draw(report: ReportInput, palette: Palette, narrow: bool) -> Figure:
    """One strip."""
    table = report.table
    assert table is not None  # `missing` was asked first
    canvas = Canvas(palette, narrow, 1.32, "Draft length K by batch size",
                    "requests in one engine step, logarithmic axis")  # fmt: skip
    axes = canvas.axes(0.0, 0.52, 0.12, 0.72)
    draw_strip(canvas, axes, table)
    canvas.axis_label(axes, "batch size (requests per engine step)")
    return canvas.figure


def draw_strip(canvas: Canvas, axes: Axes, table: Table) -> None:
    """The ranges as blocks of equal height, labelled inside where there is room."""
    last = table.max_num_seqs
    low, high = edge_before(1), last + 0.5
    set_log_axis(axes, low, high, powers_up_to(last))
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
    inches = axes.get_position().width * canvas.width_in
    for part in table.ranges:
        left, right = edge_before(part.first), part.last + 0.5
        colour = f"k{part.draft_length}"
        axes.add_patch(
            Rectangle(
                (left, 0), right - left, 1, facecolor=canvas.palette[colour],
                edgecolor=canvas.palette["paper"], linewidth=1.5,
            )
        )  # fmt: skip
        width = inches * math.log(right / left) / math.log(high / low)
        middle = math.sqrt(left * right)
        text = f"K = {part.draft_length}" if width > 0.55 else str(part.draft_length)
        if width > 0.2:
            two = width > 0.62 and axes.get_position().height * canvas.height_in > 0.5
            canvas.label(axes, middle, 0.5, text, f"{colour}-on", NORMAL + 1.5, "bold", "center",
                         shift_pt=(0, 6 if two else 0))  # fmt: skip
            if two:
                canvas.label(axes, middle, 0.5, span(part.first, part.last), f"{colour}-on",
                             SMALL + 0.5, ha="center", shift_pt=(0, -9))  # fmt: skip
