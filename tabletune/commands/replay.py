"""replay: a recorded decision log through the controller again, and why it decided so."""

import pathlib
from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from tabletune.commands.console import print_json, terminal
from tabletune.commands.exit_codes import ExitCode
from tabletune.commands.options import Json
from tabletune.pipeline.replay import Replay, replay, runs_of
from tabletune.pipeline.request import RequestError
from tabletune.pipeline.why import Why, read_time, utc, why
from tabletune.records.base import RecordError
from tabletune.records.decision_log import DecisionFacts, NoteLine, Trace, parse_trace

Log = Annotated[
    list[pathlib.Path],
    typer.Argument(help="The decision log (TABLETUNE_TRACE); rotated files LOG.1 … come with it."),
]
#: Changes and differences shown; --json has them all.
MOST_SHOWN = 20


def replay_log(
    log: Log,
    at: Annotated[
        str | None, typer.Option(help="Why at this time (UTC): 03:12, or ISO 8601, or seconds.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Why at this batch size (default: the last one seen).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay a decision log, and say why a draft length was in force.

    Alone it runs the log through the controller again; exit status 9 says that a decision came
    out otherwise, or that they cannot be compared. With --at or --batch-size it says why the
    table was as it was then.
    """
    runs = runs_of([_read(path) for path in _with_rotated(log)])
    if at is None and batch_size is None:
        results = [replay(files) for files in runs]
        if as_json:
            print_json([_as_json(result) for result in results])
        else:
            for result in results:
                _show(result, terminal())
        if not all(result.same for result in results):
            raise typer.Exit(ExitCode.REPLAY_DIFFERS)
        return
    every = [trace for files in runs for trace in files]
    when = None if at is None else read_time(at, every)
    answer = why(_run_at(runs, when), when, batch_size)
    if as_json:
        print_json(answer.as_json())
    else:
        _show_why(answer, terminal())


def _with_rotated(paths: Sequence[pathlib.Path]) -> list[pathlib.Path]:
    """The paths, and beside each its rotated files PATH.1, PATH.2, …, each once."""
    found: list[pathlib.Path] = []
    for path in paths:
        found.append(path)
        for other in sorted(path.parent.glob(f"{path.name}.*")):
            if other.suffix[1:].isdecimal():
                found.append(other)
    return list(dict.fromkeys(found))


def _read(path: pathlib.Path) -> Trace:
    try:
        with open(path, "rb") as file:
            return parse_trace(file)
    except RecordError as error:
        raise RecordError(f"{error.kind} {path}", error.reason, error.advice) from error
    except OSError as error:
        advice = "name the file that TABLETUNE_TRACE names"
        raise RequestError("LOG", "a decision log", f"{path} ({error.strerror})", advice) from error


def _run_at(runs: list[list[Trace]], when: float | None) -> list[Trace]:
    """The last run that had begun at that time."""
    begun = [f for f in runs if when is None or f[0].header.opened_unix_s <= when]
    return (begun or runs)[-1 if begun else 0]


def _as_json(result: Replay) -> dict[str, Any]:
    return {
        "run_id": result.run_id,
        "same": result.same,
        "obstacle": result.obstacle,
        "torn": result.torn,
        "ticks": result.ticks,
        "promotions": result.promotions,
        "decisions": dict(result.kinds),
        "from_unix_s": result.from_unix_s,
        "to_unix_s": result.to_unix_s,
        "changes": [{"unix_s": at, **d.model_dump(mode="json")} for at, d in result.done],
        "notes": [note.model_dump(mode="json") for note in result.notes],
        "differing": result.differing,
        "differences": [
            {
                "unix_s": difference.unix_s,
                "recorded": difference.recorded.model_dump(mode="json"),
                "replayed": difference.replayed.to_dict(),
            }
            for difference in result.differences
        ],
    }


def _show(result: Replay, console: Console) -> None:
    console.print(f"run {result.run_id}: ", end="", markup=False)
    console.print(f"{utc(result.from_unix_s)} to {utc(result.to_unix_s)}")
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(result.kinds.items()))
    console.print(f"  {result.ticks} ticks, {result.promotions} promotions; decisions: {kinds}")
    if result.torn:
        console.print("  the last line was cut off and is left out")
    for at, decision in result.done[-MOST_SHOWN:]:
        console.print(f"  {_words(at, decision)}", markup=False, soft_wrap=True)
    if len(result.done) > MOST_SHOWN:
        console.print(f"  ({len(result.done) - MOST_SHOWN} earlier changes: see --json)")
    if result.obstacle:
        console.print("  [yellow]the decisions cannot be compared[/]: ", end="")
        console.print(result.obstacle, markup=False, soft_wrap=True)
    elif result.same:
        console.print("  [green]every decision comes out the same[/]")
    else:
        console.print(f"  [red]{result.differing} decisions come out otherwise[/]")
    for difference in result.differences[:MOST_SHOWN]:
        recorded, replayed = difference.recorded, difference.replayed
        for word, decision in (("recorded", recorded), ("replayed", replayed)):
            line = f"  {utc(difference.unix_s)} {word}: {decision.kind}, {decision.reason}"
            console.print(line, markup=False, soft_wrap=True)


def _words(at: float, entry: DecisionFacts | NoteLine) -> str:
    if isinstance(entry, NoteLine):
        return f"{utc(at)}  {entry.event}: {entry.detail}"
    gain = f" (predicted gain {entry.predicted_gain:+.1%})" if entry.predicted_gain else ""
    return f"{utc(at)}  {entry.kind}: {entry.reason}{gain}"


def _show_why(answer: Why, console: Console) -> None:
    console.print(
        f"At {utc(answer.unix_s)} the controller's table had [bold]K = {answer.draft_length}[/] at "
        f"batch size {answer.batch_size}.",
        soft_wrap=True,
    )
    if answer.mode in ("shadow", "follow"):
        what = {"shadow": "nothing of this was", "follow": "only promotions and falls back were"}[
            answer.mode
        ]
        console.print(f"The engine's mode was {answer.mode}: {what} put in force.")
    if answer.since is None:
        console.print("It was the promoted table, in force since the log began.")
    else:
        console.print("Because of", _words(*answer.since), markup=False, soft_wrap=True)
        evidence = answer.since[1].evidence
        if evidence:
            numbers = ", ".join(f"{name} {value:g}" for name, value in evidence.items())
            console.print(f"  numbers then: {numbers}", markup=False, soft_wrap=True)
    if answer.outlook:
        _show_outlook(answer, console)
    else:
        console.print("What it believed cannot be worked out: ", end="")
        console.print(answer.obstacle, markup=False, soft_wrap=True)
    if answer.nearby:
        console.print("Within the minute before:")
        for line in _merged(answer)[-MOST_SHOWN:]:
            console.print(f"  {line}", markup=False, soft_wrap=True)


def _merged(answer: Why) -> list[str]:
    """The entries of the minute before; the same probe over and over is one line."""
    lines: list[str] = []
    for _, group in groupby(answer.nearby, key=lambda pair: _said(pair[1])):
        entries = list(group)
        more = f" ({len(entries)} times until {utc(entries[-1][0])})" if len(entries) > 1 else ""
        lines.append(_words(*entries[0]) + more)
    return lines


def _said(entry: DecisionFacts | NoteLine) -> str:
    return entry.event + entry.detail if isinstance(entry, NoteLine) else entry.reason


def _show_outlook(answer: Why, console: Console) -> None:
    shown = RichTable(
        title=f"what it believed at batch size {answer.batch_size}", title_justify="left"
    )
    for name in ("K", "profile ms", "live/profile", "tokens", "tok/s", ""):
        shown.add_column(name, justify="right" if name else "left")
    best = max(
        (row.predicted_goodput_tok_s or 0.0 for row in answer.outlook if row.usable), default=0.0
    )
    for row in answer.outlook:
        goodput = row.predicted_goodput_tok_s
        mark = "in force" if row.draft_length == answer.draft_length else ""
        if row.draft_length in answer.excluded:
            mark = "kept out by the guard"
        elif not row.usable:
            mark = "outside the envelope"
        elif goodput is not None and goodput == best:
            mark = f"{mark}, best" if mark else "best"
        shown.add_row(
            str(row.draft_length),
            _number(row.profiled_step_time_s, 1e3),
            _number(row.residual, 1.0),
            f"{row.expected_tokens:.3f}",
            "" if goodput is None else f"{goodput:,.0f}",
            mark,
        )
    console.print(shown)
    survival = ", ".join(f"{value:.3f}" for value in answer.survival)
    console.print(f"survival by position: {survival}")


def _number(value: float | None, factor: float) -> str:
    return "" if value is None else f"{value * factor:.3f}"
