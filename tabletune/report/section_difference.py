"""Section 6: what changes against the table in force."""

import math

from tabletune.records.diff import DiffRow, diff_rows
from tabletune.report.figure_table import span
from tabletune.report.markup import Html, join, table, tag
from tabletune.report.plots import DrawnPlots
from tabletune.report.report_input import ReportInput
from tabletune.report.text import percent, plural


def difference_section(report: ReportInput, plots: DrawnPlots) -> Html:
    """Two strips, and the changes as rows with their predicted effect."""
    if "difference" in plots.missing:
        return plots.element("difference")
    assert report.table is not None  # the plot would be missing
    assert report.incumbent is not None
    found = diff_rows(report.incumbent, report.table)
    count = sum(c.last - c.first + 1 for c in found)
    lead = f"The tables differ at {plural(count, 'batch size')} in {plural(len(found), 'range')}."
    rows = [
        [span(c.first, c.last), _length(c.old_length), _length(c.new_length), _effect(report, c)]
        for c in found
    ]
    heads = ["Batch size", "Incumbent K", "New K", "Predicted goodput"]
    return join(
        [
            tag("p", lead),
            plots.element("difference"),
            table(heads, rows, numeric=(1, 2, 3), class_="compact"),
        ]
    )


def _length(value: int | None) -> str:
    return "not covered" if value is None else str(value)


def _effect(report: ReportInput, change: DiffRow) -> str:
    """The mean predicted change over the batch sizes of the range that have predictions."""
    grid = report.predicted_goodput_tok_s
    if grid is None or change.old_length is None or change.new_length is None:
        return "not predicted"
    if max(change.old_length, change.new_length) >= grid.shape[1]:
        return "not predicted"
    ratios = [
        float(grid[i, change.new_length] / grid[i, change.old_length])
        for i, b in enumerate(report.batch_sizes)
        if change.first <= b <= change.last and grid[i, change.old_length] > 0
    ]
    known = [ratio for ratio in ratios if math.isfinite(ratio)]
    return percent(sum(known) / len(known)) if known else "not predicted"
