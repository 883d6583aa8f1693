"""Section 1: what was tuned, the verdict, the table, and how to serve with it."""

from tabletune.records.table import Table
from tabletune.report.figure_table import span
from tabletune.report.markup import Html, join, table, tag
from tabletune.report.plots import DrawnPlots
from tabletune.report.policies import read_policy
from tabletune.report.report_input import ReportInput
from tabletune.report.text import (
    best_gain,
    cautions,
    device_words,
    number,
    percent,
    plural,
    state,
    verdict_sentence,
    worst_gate,
)

_BADGES = {
    "passed": "Passed",
    "failed": "Failed",
    "unvalidated": "Not validated",
    "no_table": "No table",
}


def masthead(report: ReportInput) -> Html:
    """Title, what was tuned, the verdict in one sentence, key numbers and cautions."""
    print_ = report.fingerprint
    drafter = "" if print_.drafter is None else f" with {print_.drafter.label}"
    devices = device_words(print_.device)
    tuned = f"{print_.model.label}{drafter} ({print_.method}) on {devices}, "
    tuned += f"{print_.engine.distribution} {print_.engine.version}"
    badge = tag("span", _BADGES[state(report)], class_="badge")
    return tag(
        "header",
        tag("p", "TableTune · draft-length table", class_="eyebrow"),
        tag("h1", report.title),
        tag("p", tuned, class_="tuned"),
        tag("p", badge, " ", verdict_sentence(report), class_=f"verdict {state(report)}"),
        _tiles(report),
        _cautions(report),
        tag("p", f"Report of {report.generated_at}", class_="date"),
    )


def _tiles(report: ReportInput) -> Html:
    tiles: list[tuple[str, str, str]] = []
    verdict = report.verdict
    if verdict is not None:
        worst = worst_gate(verdict)
        if worst is not None:
            label = read_policy(worst.policy).label
            tiles.append((percent(worst.ratio), "against the best fixed length, at the worst",
                          f"concurrency {worst.concurrency}, {label}"))  # fmt: skip
        for kind, words in (("incumbent", "against the incumbent"),
                            ("no_speculation", "against no speculation")):  # fmt: skip
            gain = best_gain(verdict, kind)
            if gain is not None:
                tiles.append((percent(gain.ratio), f"{words}, at the best",
                              f"concurrency {gain.concurrency}"))  # fmt: skip
    if report.table is not None and len(tiles) < 4:
        lengths = "K = " + ", ".join(str(k) for k in reversed(report.table.lengths))
        words = "draft lengths in use" if len(report.table.lengths) > 1 else "draft length in use"
        sizes = f"in {plural(len(report.table.ranges), 'range')} up to batch size "
        tiles.append((lengths, words, sizes + str(report.table.max_num_seqs)))
    if not tiles:
        return Html("")
    return tag(
        "ul",
        *(
            tag("li", tag("b", value), tag("span", words), tag("small", where))
            for value, words, where in tiles
        ),
        class_="tiles",
    )


def _cautions(report: ReportInput) -> Html:
    found = cautions(report)
    if not found:
        return Html("")
    return tag("ul", *(tag("li", text) for text in found), class_="cautions")


def table_section(report: ReportInput, plots: DrawnPlots) -> Html:
    """The table as a strip and as rows."""
    rows = Html("")
    notes: list[object] = []
    if report.table is not None and report.version is not None:
        rows = _rows(report.table)
        notes = [tag("p", _objective(report), class_="note")]
        if report.table.notes:
            notes.append(
                tag("ul", *(tag("li", note) for note in report.table.notes), class_="note")
            )
    return join([plots.element("table"), rows, *notes])


def _objective(report: ReportInput) -> str:
    version = report.version
    assert version is not None  # the caller has a table
    if version.objective == "throughput_under_tpot_limit" and version.max_tpot_s is not None:
        return (
            "The table maximises predicted goodput under a limit of "
            f"{number(version.max_tpot_s * 1e3)} ms per output token."
        )
    return "The table maximises predicted goodput, the output tok/s of the whole batch."


def _rows(shown: Table) -> Html:
    def predicted(value: float | None) -> str:
        return "not predicted" if value is None else number(value)

    return table(
        ["Batch size", "Draft length K", "Predicted goodput, tok/s"],
        [
            [
                span(part.first, part.last),
                tag("span", str(part.draft_length), class_="chip", style=_chip(part.draft_length)),
                predicted(part.predicted_goodput_tok_s),
            ]
            for part in shown.ranges
        ],
        numeric=(2,),
        class_="compact",
    )


def _chip(length: int) -> str:
    return f"background:var(--k{length});color:var(--k{length}-on)"


def serve_section(report: ReportInput) -> Html:
    """The exact command to serve with this table."""
    if not report.engine_args.strip():
        reason = (
            "there is no table" if report.table is None else "they were not passed to this report"
        )
        return tag("p", f"No serve flags are shown: {reason}.", class_="missing")
    lead = "The table is only valid with this capture plan, so use both as they stand here."
    if state(report) != "passed":
        lead = "For trying it out only, since the table has not passed. " + lead
    return join(
        [
            tag("p", lead),
            tag(
                "div",
                tag("button", "Copy", type="button", class_="copy", hidden="hidden"),
                tag("pre", tag("code", report.engine_args)),
                class_="block",
            ),
        ]
    )
