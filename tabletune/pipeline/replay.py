"""Runs a recorded decision log through the controller again, and compares every decision."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tabletune.core.controller.controller import Controller
from tabletune.core.controller.decision import Decision
from tabletune.records.base import RecordError
from tabletune.records.decision_log import (
    KIND,
    MODE_EVENT,
    DecisionFacts,
    Entry,
    NoteLine,
    PromoteLine,
    TickLine,
    Trace,
)

#: Numbers of a decision may differ by this share: another processor rounds a logarithm's last
#: bit another way. What is done (kind, lengths, probe) must be the same.
TOLERANCE = 1e-6
MOST_DIFFERENCES = 100


@dataclass(frozen=True)
class Difference:
    """One decision that came out otherwise; `entry` counts the run's lines from 0."""

    entry: int
    unix_s: float
    recorded: DecisionFacts
    replayed: Decision


@dataclass
class Replay:
    """How a run's log replayed.

    Attributes:
        obstacle: why the decisions cannot be compared, in words; empty where they are.
        torn: the last line of some file was cut off.
        ticks, promotions: entries replayed or, where that is not possible, read.
        kinds: recorded decisions by kind.
        differences: the first of them; `differing` counts all.
        done: decisions that changed something, with their time, in order.
    """

    run_id: str
    obstacle: str = ""
    torn: bool = False
    ticks: int = 0
    promotions: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    differing: int = 0
    differences: list[Difference] = field(default_factory=list[Difference])
    done: list[tuple[float, DecisionFacts]] = field(
        default_factory=list[tuple[float, DecisionFacts]]
    )
    notes: list[NoteLine] = field(default_factory=list[NoteLine])
    from_unix_s: float = 0.0
    to_unix_s: float = 0.0

    @property
    def same(self) -> bool:
        """Every decision came out as recorded."""
        return not self.obstacle and self.differing == 0


@dataclass(frozen=True)
class Moment:
    """One entry of a log with what the controller decided about it when it was replayed."""

    index: int
    entry: TickLine | PromoteLine
    replayed: Decision


def runs_of(traces: Sequence[Trace]) -> list[list[Trace]]:
    """The files of each controller's life in order; lives by when they began.

    An engine run has one, or several where its controller was made anew: file 0 begins each.

    Raises:
        RecordError: a file is there twice, or one between others lacks.
    """
    runs: list[list[Trace]] = []
    ordered = sorted(
        traces,
        key=lambda t: (t.header.run_id, t.header.opened_unix_s, t.header.file_number),
    )
    for trace in ordered:
        begins = trace.header.file_number == 0
        if begins or not runs or runs[-1][0].header.run_id != trace.header.run_id:
            runs.append([])
        runs[-1].append(trace)
    for files in runs:
        run_id = files[0].header.run_id
        numbers = [trace.header.file_number for trace in files]
        expected = list(range(numbers[0], numbers[0] + len(numbers)))
        if numbers != expected:
            raise RecordError(
                KIND,
                f"the files of run {run_id} have the numbers {numbers}, expected {expected}",
                "name all files of the run, each once",
            )
    return sorted(runs, key=lambda files: files[0].header.opened_unix_s)


def obstacle(files: Sequence[Trace]) -> str:
    """Why the controller of these files cannot be made again, in words; empty where it can."""
    header = files[0].header
    if header.file_number != 0:
        return "the log's first file is not there"
    try:
        header.controller_settings()
    except RecordError as error:
        return f"plugin {header.plugin_version} wrote it: {error.reason}"
    return ""


def new_controller(files: Sequence[Trace]) -> Controller:
    """The controller as it was when the run began (or, for a later file, when that was opened).

    Raises:
        RecordError: the log has settings that this version does not know.
    """
    header = files[0].header
    return Controller(
        header.controller_settings(),
        header.promoted.promoted(),
        header.boot_lengths,
        np.random.default_rng(header.seed),
        adapt=adapts(header.mode),
    )


def adapts(mode: str) -> bool:
    """Whether a controller in this mode proposes tables of its own: not where it only follows."""
    return mode != "follow"


def entries_of(files: Sequence[Trace]) -> Iterator[Entry]:
    """All lines of a run but the headers, in order."""
    for trace in files:
        yield from trace.entries


def moments(files: Sequence[Trace], controller: Controller) -> Iterator[Moment]:
    """Feed the run to `controller`; after each entry it stands as it stood then."""
    for index, entry in enumerate(entries_of(files)):
        if isinstance(entry, TickLine):
            yield Moment(index, entry, controller.tick(entry.seen(), entry.now_s))
        elif isinstance(entry, PromoteLine):
            promoted = entry.promoted.promoted()
            yield Moment(index, entry, controller.promote(promoted, entry.now_s))
        elif entry.event == MODE_EVENT:
            controller.adapt = adapts(entry.detail)


def replay(files: Sequence[Trace]) -> Replay:
    """Replay one run. A log whose first file is lost, or of another version, is only read."""
    header = files[0].header
    result = Replay(header.run_id, obstacle(files), any(trace.torn for trace in files))
    entries = list(entries_of(files))
    if entries:
        result.from_unix_s, result.to_unix_s = entries[0].unix_s, entries[-1].unix_s
    for entry in entries:
        if isinstance(entry, NoteLine):
            result.notes.append(entry)
            continue
        result.ticks += isinstance(entry, TickLine)
        result.promotions += isinstance(entry, PromoteLine)
        result.kinds[entry.decision.kind] += 1
        if entry.decision.kind not in ("hold", "explore"):
            result.done.append((entry.unix_s, entry.decision))
    if not result.obstacle:
        for moment in moments(files, new_controller(files)):
            recorded = moment.entry.decision
            if not same_decision(recorded, moment.replayed):
                result.differing += 1
                if len(result.differences) < MOST_DIFFERENCES:
                    result.differences.append(
                        Difference(moment.index, moment.entry.unix_s, recorded, moment.replayed)
                    )
    return result


def same_decision(recorded: DecisionFacts, replayed: Decision) -> bool:
    """Whether both do the same, for the same numbers."""
    numbers = dict(replayed.evidence) | {"predicted_gain": replayed.predicted_gain}
    before = recorded.evidence | {"predicted_gain": recorded.predicted_gain}
    return (
        (recorded.kind, recorded.lengths, recorded.probe)
        == (replayed.kind, replayed.lengths, replayed.probe)
        and numbers.keys() == before.keys()
        and all(
            math.isclose(before[name], value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            for name, value in numbers.items()
        )
    )
