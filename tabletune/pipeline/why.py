"""Why a draft length was in force at a batch size at some time, from a decision log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, cast

from tabletune.core.controller.controller import Controller
from tabletune.pipeline.replay import entries_of, moments, new_controller, obstacle
from tabletune.pipeline.request import RequestError
from tabletune.records.base import RecordError
from tabletune.records.decision_log import (
    KIND,
    MODE_EVENT,
    DecisionFacts,
    NoteLine,
    PromoteLine,
    TickLine,
    Trace,
)

#: Decisions and notes so long before are told beside the one that counts.
AROUND_S = 60.0


@dataclass(frozen=True)
class LengthOutlook:
    """One draft length at one batch size, as the controller saw it.

    `residual` is the believed over the profiled step time. `predicted_goodput_tok_s` is None
    where the step time is not known. `usable`: the envelope allows it there.
    """

    draft_length: int
    profiled_step_time_s: float | None
    residual: float | None
    expected_tokens: float
    predicted_goodput_tok_s: float | None
    usable: bool


@dataclass(frozen=True)
class Why:
    """The answer.

    Attributes:
        unix_s: of the last entry at or before the time asked for.
        batch_size, draft_length: what the controller's table said then.
        since: the decision that put that table in force, with its time; None: it was promoted
            before the log began.
        nearby: other decisions that changed something, and notes, within a minute before.
        outlook: every length as it was seen then; empty where `obstacle` says why not.
        survival: S_1 … as believed then.
        excluded: lengths kept out by the guard.
        mode: of the engine; in ``shadow`` nothing of this was in force, in ``follow`` only
            promotions were.
    """

    unix_s: float
    mode: str
    batch_size: int
    draft_length: int
    since: tuple[float, DecisionFacts] | None
    nearby: tuple[tuple[float, DecisionFacts | NoteLine], ...]
    outlook: tuple[LengthOutlook, ...]
    survival: tuple[float, ...]
    excluded: tuple[int, ...]
    obstacle: str = ""

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        since = None
        if self.since is not None:
            since = {"unix_s": self.since[0], **self.since[1].model_dump(mode="json")}
        return {
            "unix_s": self.unix_s,
            "mode": self.mode,
            "batch_size": self.batch_size,
            "draft_length": self.draft_length,
            "since": since,
            "nearby": [
                {"unix_s": at, **entry.model_dump(mode="json")} for at, entry in self.nearby
            ],
            "outlook": [dict(vars(row)) for row in self.outlook],
            "survival": list(self.survival),
            "excluded": list(self.excluded),
            "obstacle": self.obstacle,
        }


def why(files: Sequence[Trace], at_unix_s: float | None, batch_size: int | None) -> Why:
    """Answer for the last entry at or before `at_unix_s`; None: the end of the log.

    batch_size: None: the last one seen before that time.

    Raises:
        RecordError: the log has nothing before that time, or no such batch size.
    """
    entries = [e for e in entries_of(files) if at_unix_s is None or e.unix_s <= at_unix_s]
    decided = [e for e in entries if not isinstance(e, NoteLine)]
    if not decided:
        first = next((entry.unix_s for entry in entries_of(files)), None)
        begins = "it has no entries" if first is None else f"it begins at {utc(first)}"
        raise RecordError(KIND, begins, "ask for a later time, or name earlier files too")
    table, since = files[0].header.promoted.lengths, None
    for entry in decided:
        if entry.decision.lengths is not None:
            table, since = entry.decision.lengths, (entry.unix_s, entry.decision)
    now = decided[-1]
    if batch_size is None:
        ticks = (entry for entry in reversed(decided) if isinstance(entry, TickLine))
        seen = (tick.seen().last_batch_size for tick in ticks)
        batch_size = next((b for b in seen if b), 1)
    if not 1 <= batch_size <= len(table):
        reason = f"it has batch sizes 1 … {len(table)}, not {batch_size}"
        raise RecordError(KIND, reason, "ask for one of those")
    controller = _controller_at(files, len(decided))
    state = {} if controller is None else controller.state()
    guard = cast(dict[str, Any], state.get("guard", {}))
    return Why(
        unix_s=now.unix_s,
        mode=_mode_at(files, now.unix_s),
        batch_size=batch_size,
        draft_length=table[batch_size - 1],
        since=since,
        nearby=tuple(_nearby(entries, now.unix_s, since)),
        outlook=() if controller is None else _outlook(controller, batch_size),
        survival=tuple(cast(list[float], state.get("survival", []))),
        excluded=tuple(cast(list[int], guard.get("excluded_lengths", []))),
        obstacle=obstacle(files),
    )


def _controller_at(files: Sequence[Trace], decisions: int) -> Controller | None:
    """The controller after so many decisions; None where it cannot be made again."""
    if obstacle(files):
        return None
    controller = new_controller(files)
    for count, _ in enumerate(moments(files, controller), start=1):
        if count == decisions:
            break
    return controller


def _mode_at(files: Sequence[Trace], unix_s: float) -> str:
    mode = files[0].header.mode
    for entry in entries_of(files):
        if isinstance(entry, NoteLine) and entry.event == MODE_EVENT and entry.unix_s <= unix_s:
            mode = entry.detail
    return mode


def _nearby(
    entries: Sequence[TickLine | PromoteLine | NoteLine],
    now_unix_s: float,
    since: tuple[float, DecisionFacts] | None,
) -> list[tuple[float, DecisionFacts | NoteLine]]:
    found: list[tuple[float, DecisionFacts | NoteLine]] = []
    for entry in entries:
        if entry.unix_s < now_unix_s - AROUND_S:
            continue
        if isinstance(entry, NoteLine):
            found.append((entry.unix_s, entry))
        elif entry.decision.kind != "hold" and (since is None or entry.decision is not since[1]):
            found.append((entry.unix_s, entry.decision))
    return found


def _outlook(controller: Controller, b: int) -> tuple[LengthOutlook, ...]:
    promoted, state = controller.promoted, controller.state()
    survival = cast(list[float], state["survival"])
    rate = cast(list[float], state["proposal_rate"])
    gains = accumulate((s * p for s, p in zip(survival, rate, strict=True)), initial=1.0)
    tokens = list(gains)
    rows: list[LengthOutlook] = []
    for k in sorted({*promoted.usable, *promoted.lengths}):
        if k >= len(tokens):
            continue
        covered = promoted.surface.covered(b, k)
        profiled = promoted.surface.step_time_s(b, k) if covered else None
        believed = controller.expected_step_time_s(b, k)
        rows.append(
            LengthOutlook(
                draft_length=k,
                profiled_step_time_s=profiled,
                residual=None if profiled is None or believed is None else believed / profiled,
                expected_tokens=tokens[k],
                predicted_goodput_tok_s=None if believed is None else b * tokens[k] / believed,
                usable=believed is not None and k in promoted.usable and promoted.envelope(b, k),
            )
        )
    return tuple(rows)


def read_time(text: str, files: Sequence[Trace]) -> float:
    """Seconds since 1970 (UTC) of a time as a person writes it.

    ``03:12`` and ``03:12:30`` mean the last such time of day within the log, in UTC; with a
    date, ISO 8601; or seconds since 1970.

    Raises:
        RequestError: it is none of these.
    """
    try:
        return _read_time(text, files)
    except (ValueError, OverflowError) as error:
        expected = "a time such as 03:12, 2026-03-12T03:12:00, or seconds since 1970"
        raise RequestError("--at", expected, text, "times are UTC") from error


def _read_time(text: str, files: Sequence[Trace]) -> float:
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        datetime.fromtimestamp(seconds, UTC)  # a time that can be shown
        return seconds
    last = max((entry.unix_s for entry in entries_of(files)), default=0.0)
    try:
        clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") > 1 else "%H:%M")
    except ValueError:
        when = datetime.fromisoformat(text)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    end = datetime.fromtimestamp(last, UTC)
    when = end.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
    return (when if when <= end else when - timedelta(days=1)).timestamp()


def utc(unix_s: float) -> str:
    """Such as ``2026-03-12 03:12:00 UTC``."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
