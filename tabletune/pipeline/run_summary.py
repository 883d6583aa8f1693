"""A run in Markdown, for wherever people read about runs."""

from collections.abc import Sequence

from tabletune.pipeline.staged_run import StagedRun
from tabletune.records.diff import version_diff_words
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict

#: Lines of differences that are listed.
MOST_LINES = 12


def run_markdown(
    deployment: str,
    run: StagedRun,
    headline: str,
    reasons: Sequence[str] = (),
    links: Sequence[str] = (),
) -> str:
    """What a run came to: outcome, table, verdict, and what is different from the incumbent.

    Args:
        headline: the outcome in a few words, such as ``promoted to live as move 3``.
        reasons: for the outcome.
        links: Markdown links to report and tracker.
    """
    version = run.build_made.version
    fingerprint = run.evidence.fingerprint
    engine = fingerprint.engine
    parts = [
        f"# {plain(deployment)}: {plain(headline)}",
        "\n".join(f"- {plain(reason)}" for reason in reasons),
        f"Version `{version.content_hash[:12]}` for {engine.distribution} {engine.version} on "
        f"{plain(fingerprint.device.name)}, {plain(fingerprint.method)}.",
        table_markdown(version),
    ]
    if run.verdict is not None:
        parts.append(verdict_markdown(run.verdict))
    if run.incumbent is not None:
        parts.append(difference_markdown(run.incumbent, version))
    if links:
        parts.append(" · ".join(links))
    return "\n\n".join(part for part in parts if part)


def table_markdown(version: TableVersion) -> str:
    """The ranges of the table."""
    rows = [
        (
            f"{r.first}–{r.last}" if r.first != r.last else str(r.first),
            str(r.draft_length),
            "" if r.predicted_goodput_tok_s is None else f"{r.predicted_goodput_tok_s:,.0f}",
        )
        for r in version.table.ranges
    ]
    return markdown_table(("batch sizes", "draft length", "predicted tok/s"), rows)


def verdict_markdown(verdict: Verdict) -> str:
    """Passed or failed, why, and the ratios by concurrency."""
    concurrencies = sorted({ratio.concurrency for ratio in verdict.ratios})
    found = {(r.policy, r.concurrency): r for r in verdict.ratios}
    rows: list[tuple[str, ...]] = []
    for policy in dict.fromkeys(ratio.policy for ratio in verdict.ratios):
        cells = [found.get((policy, concurrency)) for concurrency in concurrencies]
        shown = ("" if r is None else f"{r.ratio:.3f} [{r.low:.3f}, {r.high:.3f}]" for r in cells)
        rows.append((policy.replace("_", " "), *shown))
    word = "passed" if verdict.passed else "failed"
    reasons = "".join(f"- {plain(reason)}\n" for reason in verdict.reasons)
    header = ("throughput over", *(f"{c} open" for c in concurrencies))
    return f"## Validation {word}\n\n{reasons}\n{markdown_table(header, rows)}"


def difference_markdown(old: TableVersion, new: TableVersion) -> str:
    """What `new` does differently, in words."""
    words = version_diff_words(old, new) or ["nothing"]
    more = [f"and {len(words) - MOST_LINES} more"] if len(words) > MOST_LINES else []
    lines = "\n".join(f"- {plain(line)}" for line in [*words[:MOST_LINES], *more])
    return f"## Different from `{old.content_hash[:12]}`\n\n{lines}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are shown as they are."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(plain(cell) for cell in line)} |" for line in lines)


def plain(text: str) -> str:
    """Text that Markdown shows as it is: names come from files and must not become links."""
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
