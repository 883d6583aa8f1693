"""Section 6: what changes against the table in force."""

import math
from dataclasses import dataclass

from tabletune.records.table import Table
from tabletune.report.figure_table import span
from tabletune.report.markup import Html, join, table, tag
from tabletune.report.plots import DrawnPlots
from tabletune.report.report_input import ReportInput
from tabletune.report.text import percent, plural


@dataclass(frozen=True)
class Change:
    """Batch sizes `first` … `last` go from one draft length to another; None: not covered."""

    first: int
    last: int
    old: int | None
    new: int | None


def changes(old: Table, new: Table) -> list[Change]:
    """The ranges in which the two tables differ, in order."""
    before, after = old.dense(), new.dense()
    found: list[Change] = []
    for b in range(1, max(len(before), len(after))):
        pair = (before[b] if b < len(before) else None, after[b] if b < len(after) else None)
        if pair[0] == pair[1]:
            continue
        last = found[-1] if found else None
        if last is not None and last.last == b - 1 and (last.old, last.new) == pair:
            found[-1] = Change(last.first, b, *pair)
        else:
            found.append(Change(b, b, *pair))
    return found


def difference_section(report: ReportInput, plots: DrawnPlots) -> Html:
    """Two strips, and the changes as rows with their predicted effect."""
    if "difference" in plots.missing:
        return plots.element("difference")
    assert report.table is not None  # the plot would be missing
    assert report.incumbent is not None
    found = changes(report.incumbent, report.table)
    count = sum(c.last - c.first + 1 for c in found)
    lead = f"The tables differ at {plural(count, 'batch size')} in {plural(len(found), 'range')}."
    rows = [
        [span(c.first, c.last), _length(c.old), _length(c.new), _effect(report, c)] for c in found
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


def _effect(report: ReportInput, change: Change) -> str:
    """The mean predicted change over the batch sizes of the range that have predictions."""
    grid = report.predicted_goodput_tok_s
    if grid is None or change.old is None or change.new is None:
        return "not predicted"
    if max(change.old, change.new) >= grid.shape[1]:
        return "not predicted"
    ratios = [
        float(grid[i, change.new] / grid[i, change.old])
        for i, b in enumerate(report.batch_sizes)
        if change.first <= b <= change.last and grid[i, change.old] > 0
    ]
    known = [ratio for ratio in ratios if math.isfinite(ratio)]
    return percent(sum(known) / len(known)) if known else "not predicted"
