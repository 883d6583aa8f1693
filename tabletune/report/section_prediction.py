"""Sections 3 and 4: predicted goodput and the step times it rests on."""

import numpy as np

from tabletune.records.step_profile import Profile
from tabletune.report.markup import Html, details, join, table, tag
from tabletune.report.plots import DrawnPlots
from tabletune.report.report_input import ReportInput
from tabletune.report.step_times import CellTime, cell_times
from tabletune.report.text import duration, milliseconds, number, plural

_MOST_ROWS = 48


def goodput_section(report: ReportInput, plots: DrawnPlots) -> Html:
    """The curves and their numbers."""
    if plots.missing.get("goodput"):
        return plots.element("goodput")
    lead = tag(
        "p",
        "Per engine step a request yields E(K) tokens: one, and every guess that survives. A "
        "longer draft pays while its extra tokens outweigh its longer step.",
    )
    return join([lead, plots.element("goodput"), _goodput_numbers(report)])


def _goodput_numbers(report: ReportInput) -> Html:
    grid = report.predicted_goodput_tok_s
    assert grid is not None  # the caller checked
    rows: list[list[object]] = []
    every = max(1, -(-len(report.batch_sizes) // _MOST_ROWS))
    for index, size in list(enumerate(report.batch_sizes))[::every]:
        chosen = report.table.dense() if report.table else []
        values: list[object] = [size]
        for length in range(grid.shape[1]):
            text = number(grid[index, length]) if np.isfinite(grid[index, length]) else "–"
            picked = size < len(chosen) and chosen[size] == length
            values.append(tag("b", text, class_="chosen") if picked else text)
        rows.append(values)
    heads = ["Batch size", *(f"K = {k}" for k in range(grid.shape[1]))]
    title = "All predictions, tok/s (bold: the table's choice)"
    return details(title, table(heads, rows, numeric=range(len(heads))))


def step_time_section(report: ReportInput, plots: DrawnPlots) -> Html:
    """The heat map, how it was measured, and what was not usable."""
    profile = report.profile
    if profile is None:
        return plots.element("step_time")
    cells = cell_times(profile)
    return join(
        [
            tag("p", _how(profile, list(cells.values()))),
            plots.element("step_time"),
            _problems(list(cells.values())),
            _step_numbers(cells),
        ]
    )


def _how(profile: Profile, cells: list[CellTime]) -> str:
    used = [c for c in cells if c.step_time_s is not None]
    method = (
        "inside the running engine, from the intervals between its steps"
        if profile.method == "in_engine"
        else "from outside, as the difference between long and short requests"
    )
    kind = (
        ""
        if profile.step_kind == "constant"
        else " Steps of a cell differ, because the drafter proposes for some requests only; the "
        "mean is shown."
    )
    widths = sorted(c.relative_halfwidth for c in used)
    sure = f" The median interval is ±{100 * widths[len(widths) // 2]:.1f}%." if widths else ""
    return (
        f"{plural(len(used), 'cell')} from {plural(sum(c.sample_count for c in used), 'sample')} "
        f"in {duration(profile.wall_time_s)}, measured {method}, at prompts of "
        f"{profile.prompt_tok} tokens.{sure}{kind}"
    )


def _problems(cells: list[CellTime]) -> Html:
    bad = [c for c in cells if c.problem]
    if not bad:
        return tag("p", "Every cell was measured and is usable.", class_="note")
    rows = [
        [c.batch_size, c.draft_length, "not used" if c.state == "unused" else c.state, c.problem]
        for c in sorted(bad, key=lambda c: (c.batch_size, c.draft_length))
    ]
    return table(["Batch size", "K", "State", "Why"], rows, numeric=(0, 1))


def _step_numbers(cells: dict[tuple[int, int], CellTime]) -> Html:
    rows = [
        [
            c.batch_size,
            c.draft_length,
            "–" if c.step_time_s is None else milliseconds(c.step_time_s),
            "–" if c.step_time_s is None else f"±{100 * c.relative_halfwidth:.1f}%",
            c.sample_count,
        ]
        for _, c in sorted(cells.items())
    ]
    heads = ["Batch size", "K", "Step time, ms", "Interval", "Samples"]
    return details("All step times", table(heads, rows, numeric=range(5)))
