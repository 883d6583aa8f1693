"""A run's result for the terminal and as JSON."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from tabletune.commands.console import terminal
from tabletune.pipeline.run import RunResult
from tabletune.pipeline.serve import WITH_PLUGIN, WITHOUT_PLUGIN, ServeCommands
from tabletune.records.table import Table
from tabletune.records.verdict import Verdict
from tabletune.report.text import outcome_sentence


def result_json(result: RunResult) -> dict[str, Any]:
    """What a script wants to know of a run."""
    verdict, move = result.verdict, result.move
    return {
        "table": [[r.first, r.last, r.draft_length] for r in result.build.version.table.ranges],
        "table_version": result.build.version.content_hash,
        "fingerprint": result.evidence.fingerprint.identity,
        "excluded": list(result.evidence.qualification.excluded),
        "verdict": None
        if verdict is None
        else {
            "passed": verdict.passed,
            "reasons": list(verdict.reasons),
            "hash": verdict.content_hash,
        },
        "promoted": None
        if move is None
        else {
            "channel": move.pointer.channel,
            "sequence": move.pointer.sequence,
            "moved": move.moved,
        },
        "serve": result.commands.as_json(),
        "report": str(result.report_html),
        "boot_times_s": {name: round(t, 1) for name, t in result.boot_times_s.items()},
        "profile_s": round(result.evidence.profile.wall_time_s, 1),
    }


def show_table(table: Table, console: Console) -> None:
    """The table in three columns."""
    shown = RichTable(title="draft-length table", title_justify="left")
    shown.add_column("batch sizes", justify="right")
    shown.add_column("draft length", justify="right")
    shown.add_column("predicted tok/s", justify="right")
    for part in table.ranges:
        sizes = f"{part.first}" if part.first == part.last else f"{part.first}–{part.last}"
        goodput = part.predicted_goodput_tok_s
        shown.add_row(sizes, str(part.draft_length), "" if goodput is None else f"{goodput:,.0f}")
    console.print(shown)
    for note in table.notes:
        console.print(f"  note: {note}", markup=False, soft_wrap=True)


def show_verdict(verdict: Verdict, console: Console) -> None:
    """Passed or failed, why, and the ratios."""
    word = "[bold green]passed" if verdict.passed else "[bold red]failed"
    console.print(f"validation {word}")
    console.print(outcome_sentence(verdict), markup=False)
    for reason in verdict.reasons:
        console.print(f"  {reason}", markup=False, soft_wrap=True)
    concurrencies = sorted({ratio.concurrency for ratio in verdict.ratios})
    title: str | None = "throughput of the table over …"
    for some in _that_fit(concurrencies, console.width):
        console.print(_ratios(verdict, some, title))
        title = None


_POLICY_WIDTH, _RATIO_WIDTH = 25, 23  # of a column with its borders


def _that_fit(concurrencies: list[int], width: int) -> Iterator[list[int]]:
    """The concurrencies in parts, each narrow enough for a terminal of `width` characters."""
    each = max(1, (width - _POLICY_WIDTH) // _RATIO_WIDTH)
    for start in range(0, len(concurrencies), each):
        yield concurrencies[start : start + each]


def _ratios(verdict: Verdict, concurrencies: list[int], title: str | None) -> RichTable:
    """One row a policy, one column a concurrency: the ratio and its interval."""
    shown = RichTable(title=title, title_justify="left")
    shown.add_column("policy")
    for concurrency in concurrencies:
        shown.add_column(f"{concurrency} open", justify="right")
    found = {(r.policy, r.concurrency): r for r in verdict.ratios}
    for policy in dict.fromkeys(ratio.policy for ratio in verdict.ratios):
        cells = [found.get((policy, concurrency)) for concurrency in concurrencies]
        shown.add_row(
            policy.replace("_", " ").replace("fixed-", "fixed K = "),
            *("" if r is None else f"{r.ratio:.3f} [{r.low:.3f}, {r.high:.3f}]" for r in cells),
        )
    return shown


#: What to do after a verdict that fails.
AGAIN = (
    "  where the intervals above are wide, run the same command again on a quieter machine: it "
    "measures the throughput anew; with --fresh all else too"
)


def print_result(result: RunResult, console: Console | None = None) -> None:
    """The result as a person reads it."""
    console = console or terminal()
    show_table(result.build.version.table, console)
    if result.verdict is not None:
        show_verdict(result.verdict, console)
    move = result.move
    version = result.build.version.content_hash
    if move is None:
        state = "not promoted"
    elif move.moved:
        state = f"promoted to channel {move.pointer.channel!r} as move {move.pointer.sequence}"
    else:
        state = f"already in force on channel {move.pointer.channel!r}"
    console.print(f"table version [bold]{version}[/bold]\n  {escape(state)}")
    for note in move.notes if move is not None else ():
        console.print(f"  {note}", markup=False, soft_wrap=True)
    if result.verdict is None or not result.verdict.passed:
        why = "was not validated" if result.verdict is None else "did not pass"
        warning = (
            f"  for trying it out only: this table {why}; with the plugin an engine boots with it "
            "and then follows what the channel holds"
        )
        console.print(warning, soft_wrap=True)
    if result.verdict is not None and not result.verdict.passed:
        console.print(AGAIN, soft_wrap=True)
    show_commands(result.commands, console)
    console.print(f"report: {result.report_html}", markup=False, soft_wrap=True)


def show_commands(commands: ServeCommands, console: Console) -> None:
    """Both command lines, each whole on one line, for a shell."""
    adapting, stock = commands.graph_counts
    for title, line, graphs, notes in (
        (WITH_PLUGIN, commands.with_plugin, adapting, commands.notes),
        (WITHOUT_PLUGIN, commands.without_plugin, stock, ()),
    ):
        console.print(f"serve it {title}{f', {graphs} graphs' if graphs else ''}:", soft_wrap=True)
        console.print(line, markup=False, soft_wrap=True)
        for note in notes:
            console.print(f"  {note}", markup=False, soft_wrap=True)
