"""Section 5: survival per draft position, by prompt group, and the proposal rate."""

from tabletune.core.goodput import expected_tokens
from tabletune.core.survival import conditional_acceptance, proposal_rate, survival
from tabletune.core.survival import survival_interval as interval
from tabletune.records.acceptance import PositionCounts
from tabletune.report.figure_survival import core_counts
from tabletune.report.markup import Html, details, join, table, tag
from tabletune.report.plots import DrawnPlots
from tabletune.report.report_input import ReportInput
from tabletune.report.text import duration, plural


def acceptance_section(report: ReportInput, plots: DrawnPlots) -> Html:
    """The bars, what they rest on, and the numbers."""
    prior = report.prior
    if prior is None or "survival" in plots.missing:
        return plots.element("survival")
    source = (
        "Synthetic acceptance: the engine was told at which rates to accept"
        if prior.source == "synthetic"
        else f"Measured on {plural(prior.prompt_count, 'sample prompt')}"
    )
    lead = (
        f"{source}, at draft length {prior.draft_length}, over "
        f"{plural(prior.counts.request_steps, 'request-step')} in {duration(prior.wall_time_s)}."
    )
    return join(
        [
            tag("p", lead),
            _proposals(prior.counts),
            plots.element("survival"),
            _numbers(prior.counts),
            _groups(prior.by_group),
        ]
    )


def _proposals(counts: PositionCounts) -> Html:
    rate = proposal_rate(core_counts(counts))
    if rate.size == 0 or rate[0] >= 0.9995:
        return Html("")
    return tag(
        "p",
        f"The drafter proposed at least one guess in {100 * rate[0]:.0f}% of the request-steps and "
        f"all {rate.size} in {100 * rate[-1]:.0f}%. Expected tokens count that: no proposal, no "
        "gain.",
    )


def _numbers(counts: PositionCounts) -> Html:
    core = core_counts(counts)
    values, bounds = survival(core), interval(core)
    chances, rate = conditional_acceptance(values), proposal_rate(core)
    tokens = expected_tokens(values, rate)
    proposes = rate.size > 0 and rate[0] < 0.9995
    heads = ["Position i", "Survival", "95% interval", "Accepted given i − 1", "Drafted", "E(i)"]
    rows: list[list[object]] = [
        [i + 1, f"{values[i]:.3f}", f"{bounds[i][0]:.3f} – {bounds[i][1]:.3f}", f"{chances[i]:.3f}",
         f"{counts.drafted_through[i]:,}", f"{tokens[i + 1]:.2f}"]
        for i in range(len(values))
    ]  # fmt: skip
    if proposes:
        heads.append("Proposal rate")
        rows = [[*row, f"{rate[i]:.3f}"] for i, row in enumerate(rows)]
    return table(heads, rows, numeric=range(len(heads)))


def _groups(groups: dict[str, PositionCounts]) -> Html:
    if not groups:
        return tag("p", "The prompts were not split into groups.", class_="note")
    longest = max(len(c.drafted_through) for c in groups.values())
    rows: list[list[object]] = []
    for name, counts in sorted(groups.items()):
        values = survival(core_counts(counts))
        cells: list[object] = [
            f"{v:.3f}" if d else "–" for v, d in zip(values, counts.drafted_through, strict=True)
        ]
        padding: list[object] = ["–"] * (longest - len(cells))
        rows.append([name, f"{counts.request_steps:,}", *cells, *padding])
    heads = ["Prompt group", "Request-steps", *(f"S{i}" for i in range(1, longest + 1))]
    return details("By prompt group", table(heads, rows, numeric=range(1, len(heads))))
