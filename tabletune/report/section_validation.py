"""Section 2: the measured throughput and the verdict that follows."""

from tabletune.records.verdict import Verdict
from tabletune.report.markup import Html, details, join, table, tag
from tabletune.report.plots import DrawnPlots
from tabletune.report.policies import best_fixed, in_order, limit, mean_tok_s, read_policy, standing
from tabletune.report.report_input import ReportInput
from tabletune.report.text import duration, number, plural

_STANDINGS = {"holds": "holds", "unclear": "unclear", "fails": "falls short"}


def validation_section(report: ReportInput, plots: DrawnPlots) -> Html:
    """Reasons, forest plot, throughput curves, stock check and all numbers."""
    verdict = report.verdict
    if verdict is None:
        return plots.element("ratios")
    return join(
        [
            _lead(verdict),
            _reasons(verdict),
            plots.element("ratios"),
            plots.element("throughput"),
            _stock(verdict),
            _ratio_numbers(verdict),
            _throughput_numbers(verdict),
        ]
    )


def _lead(verdict: Verdict) -> Html:
    margins = verdict.margins
    windows = [len(m.windows_tok_s) for m in verdict.measured if m.windows_tok_s]
    each = ""
    if windows:
        few, many = min(windows), max(windows)
        each = f" in {plural(many, 'window') if few == many else f'{few} to {many} windows'} each"
    required = f"at least {1 - margins.best_fixed:.0%} of every fixed length"
    if verdict.incumbent_version:
        required += f", {1 - margins.incumbent:.0%} of the incumbent"
    required += f" and {1 - margins.no_speculation:.0%} of an engine without speculation"
    policies = [
        policy
        for policy in in_order(m.policy for m in verdict.measured)
        if policy.kind not in ("stock", "candidate_by_metrics", "off_by_metrics")
    ]
    text = (
        f"{plural(len(policies), 'policy was', 'policies were')} measured{each}. "
        f"To pass, the table must hold {required}, at every concurrency. Where "
        "further rounds left that unclear, the mean decided, unless the interval went more than "
        f"{100 * margins.slack:.0f} percentage points below the mark. Measuring took "
        f"{duration(verdict.wall_time_s)}."
    )
    return tag("p", text)


def _reasons(verdict: Verdict) -> Html:
    if not verdict.reasons:
        return Html("")
    return tag("ul", *(tag("li", reason) for reason in verdict.reasons), class_="reasons")


def _stock(verdict: Verdict) -> Html:
    stock = verdict.stock
    if stock is None:
        return tag("p", "A stock engine without the plugin was not tried.", class_="missing")
    words = "follows the table as written" if stock.passed else "does not follow the table"
    return tag(
        "p", tag("b", "Stock engine. "), f"An engine without the plugin {words}. ", stock.evidence
    )


def _ratio_numbers(verdict: Verdict) -> Html:
    order = {p.name: i for i, p in enumerate(in_order(r.policy for r in verdict.ratios))}
    rows: list[list[object]] = []
    for ratio in sorted(verdict.ratios, key=lambda r: (r.concurrency, order[r.policy])):
        least = limit(verdict.margins, ratio)
        name = read_policy(ratio.policy).label
        if ratio == best_fixed(verdict, ratio.concurrency):
            name += " (best fixed)"
        outcome = "–" if least is None else _STANDINGS[standing(verdict.margins, ratio)]
        rows.append(
            [ratio.concurrency, name, f"{ratio.ratio:.3f}", f"{ratio.low:.3f} – {ratio.high:.3f}",
             "–" if least is None else f"{least:.2f}", outcome]
        )  # fmt: skip
    if not rows:
        return Html("")
    heads = ["Concurrency", "Against", "Ratio", f"{verdict.margins.confidence:.0%} interval",
             "Required", "Outcome"]  # fmt: skip
    return details("All ratios", table(heads, rows, numeric=(0, 2, 3, 4)))


def _throughput_numbers(verdict: Verdict) -> Html:
    means = mean_tok_s(verdict)
    if not means:
        return Html("")
    loads = sorted({load for _, load in means})
    policies = in_order(name for name, _ in means)
    rows = [
        [p.label, *(number(means[p.name, c]) if (p.name, c) in means else "–" for c in loads)]
        for p in policies
    ]
    heads = ["Mean output tok/s at concurrency", *(str(load) for load in loads)]
    return details("All throughputs", table(heads, rows, numeric=range(1, len(loads) + 1)))
