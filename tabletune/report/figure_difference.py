"""The table and the incumbent, one strip above the other."""

from matplotlib.figure import Figure

from tabletune.report.canvas import NORMAL, Canvas
from tabletune.report.figure_table import draw_strip, table_in_words
from tabletune.report.report_input import ReportInput
from tabletune.report.theme import Palette

NAME = "difference"


def missing(report: ReportInput) -> str:
    """Why there is nothing to draw; empty when there is."""
    if report.table is None:
        return "No table came out of this run, so there is nothing to compare."
    if report.incumbent is None:
        return "No table was in force before this one, so there is nothing to compare it with."
    if report.table.dense() == report.incumbent.dense():
        return "This table is the same as the one in force, at every batch size."
    return ""


def describe(report: ReportInput) -> str:
    """The figure in a sentence, for readers who cannot see it."""
    if report.table is None or report.incumbent is None:
        return ""
    new, old = table_in_words(report.table), table_in_words(report.incumbent)
    return f"Incumbent table: {old}. This table: {new}."


def draw(report: ReportInput, palette: Palette, narrow: bool) -> Figure:
    """Two strips on axes of their own, since their largest batch sizes may differ."""
    assert report.table is not None  # `missing` was asked first
    assert report.incumbent is not None
    subtitle = "draft length K by batch size, logarithmic axis"
    canvas = Canvas(palette, narrow, 2.42, "Before and after", subtitle)
    left = 0.0 if narrow else 1.15
    strips = ((1.55, "incumbent", report.incumbent), (0.55, "this table", report.table))
    for bottom, name, table in strips:
        axes = canvas.axes(left, bottom, 0.12, 0.5)
        draw_strip(canvas, axes, table)
        if narrow:
            canvas.write(left, bottom + 0.57, name, NORMAL, "muted")
        else:
            canvas.write(0.0, bottom + 0.2, name, NORMAL, "ink")
        if table is report.table:
            canvas.axis_label(axes, "batch size (requests per engine step)")
    return canvas.figure
