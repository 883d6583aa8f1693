"""The live view of one engine: from its status to what a terminal shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

BAR_WIDTH = 16
MOST_RANGES = 14
DECISIONS = 6
PROBES = 1
REFUSALS = 3


@dataclass(frozen=True)
class Seen:
    """A status and when it was read; `trouble` is why the last try gave none, `since_s` how
    long ago that began; `steps_s`: engine steps a second since the read before."""

    url: str
    status: dict[str, Any]
    read_unix_s: float
    steps_s: float | None = None
    trouble: str = ""
    since_s: float = 0.0


class Reading:
    """A part of a status, read without trust: what is missing or of another kind is absent."""

    def __init__(self, value: object) -> None:
        self._fields = cast(dict[str, Any], value) if isinstance(value, dict) else {}

    def part(self, name: str) -> "Reading":
        return Reading(self._fields.get(name))

    def text(self, name: str, otherwise: str = "–") -> str:
        value = self._fields.get(name)
        if not isinstance(value, str) or not value:
            return otherwise
        # What an engine says must not be able to steer a terminal.
        return "".join(char if char.isprintable() else " " for char in value)

    def texts(self, name: str) -> list[str]:
        return [Reading({"": item}).text("") for item in self.items(name)]

    def number(self, name: str) -> float | None:
        value = self._fields.get(name)
        return float(value) if isinstance(value, int | float) and type(value) is not bool else None

    def flag(self, name: str) -> bool:
        return self._fields.get(name) is True

    def numbers(self, name: str) -> list[float]:
        return [float(v) for v in self.items(name) if isinstance(v, int | float)]

    def items(self, name: str) -> list[Any]:
        value = self._fields.get(name)
        return cast(list[Any], value) if isinstance(value, list) else []

    def parts(self, name: str) -> list["Reading"]:
        return [Reading(item) for item in self.items(name)]

    def __bool__(self) -> bool:
        return bool(self._fields)


def view(seen: Seen) -> RenderableType:
    """Everything, top to bottom."""
    status = Reading(seen.status)
    controller = status.part("controller")
    state = controller.part("state")
    blocks: list[RenderableType] = [_head(seen, status, controller)]
    if seen.trouble:
        text = f"for {seen.since_s:.0f} s: {seen.trouble}"
        blocks.append(Text(text, style="bold red"))
    side: list[RenderableType] = []
    if state:
        side = [_survival(state), Text(""), _costs(state, status, seen.read_unix_s)]
    blocks.append(
        Columns([_table(status, state), Group(*side)], padding=(0, 2))
        if side
        else _table(status, state)
    )
    blocks += _decisions(controller)
    blocks += _refusals(controller)
    return Group(*blocks)


def _head(seen: Seen, status: Reading, controller: Reading) -> RenderableType:
    lines = Text(no_wrap=False)
    lines.append(seen.url, style="bold")
    lines.append(
        f"  vLLM {status.text('vllm_version')} {status.text('runner')} {status.text('device')}"
        f"  {status.text('method')}"
    )
    if not status.flag("active"):
        lines.append(f"\noff: {status.text('reason')}", style="bold red")
    rate = "" if seen.steps_s is None else f" ({seen.steps_s:,.0f} a second)"
    steps = status.number("steps")
    lines.append(f"\n{0 if steps is None else steps:,.0f} steps{rate}")
    if swaps := status.number("swaps"):
        lines.append(f", {swaps:.0f} swaps")
    lines.append(f", read {_clock(seen.read_unix_s)} UTC")
    if not controller:
        lines.append("\nno source is followed (TABLETUNE_SOURCE is not set)")
        return lines
    mode, ceiling = controller.text("mode"), controller.text("ceiling")
    lines.append("\nmode ")
    lines.append(mode, style="bold" if mode in ("adapt", "follow") else "bold yellow")
    if ceiling not in (mode, "–"):
        lines.append(f" (this engine allows {ceiling})")
    cached = ", from the disk cache" if controller.flag("from_cache") else ""
    version = controller.text("version", "none yet")[:12]
    lines.append(f"  version {version} of channel {controller.text('channel')}{cached}")
    if suspended := controller.text("suspended", ""):
        lines.append(f"\nsuspended: {suspended}", style="bold yellow")
    for note in controller.texts("notes")[:2]:
        lines.append(f"\nnote: {note}", style="yellow")
    return lines


def _table(status: Reading, state: Reading) -> Table:
    shown = Table(
        title="table in force", title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    shown.add_column("batch sizes", justify="right")
    shown.add_column("K", justify="right", style="bold")
    shown.add_column("boot", justify="right", style="dim")
    shown.add_column("")
    rows = _rows(status.items("table"))
    boot = _rows(status.items("boot_table"))
    live = state.number("batch_size") or 0
    here = next((i for i, (first, last, _) in enumerate(rows) if first <= live <= last), 0)
    start = max(0, min(here - MOST_RANGES // 2, len(rows) - MOST_RANGES))
    for first, last, length in rows[start : start + MOST_RANGES]:
        sizes = f"{first}" if first == last else f"{first}–{last}"
        before = sorted({k for low, high, k in boot if low <= last and high >= first})
        booted = (
            f"{before[0]}" if len(before) == 1 else f"{before[0]}…{before[-1]}" if before else ""
        )
        now = f"◀ {live:.0f}" if first <= live <= last else ""
        shown.add_row(sizes, f"{length}", booted, Text(now, style="cyan"))
    if len(rows) > MOST_RANGES:
        shown.add_row("", "", "", Text(f"{len(rows)} ranges", style="dim"))
    return shown


def _rows(items: Sequence[Any]) -> list[tuple[int, int, int]]:
    rows: list[tuple[int, int, int]] = []
    for item in items:
        if isinstance(item, list):
            row = cast(list[Any], item)
            if len(row) == 3 and all(type(value) is int for value in row):
                rows.append((row[0], row[1], row[2]))
    return rows


def _survival(state: Reading) -> Table:
    shown = Table(
        title="live survival",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        show_header=False,
    )
    rates = state.numbers("proposal_rate")
    for position, value in enumerate(state.numbers("survival"), start=1):
        rate = rates[position - 1] if position <= len(rates) else 1.0
        proposed = "" if rate > 0.995 else f"proposed {rate:.0%}"
        shown.add_row(f"{position}", _bar(value), f"{value:.2f}", Text(proposed, style="dim"))
    if changes := state.number("traffic_changes"):
        shown.caption = f"traffic changed {changes:.0f} times"
        shown.caption_justify = "left"
    return shown


def _bar(share: float) -> Text:
    filled = round(min(max(share, 0.0), 1.0) * BAR_WIDTH)
    return Text("█" * filled, style="green") + Text("░" * (BAR_WIDTH - filled), style="dim")


def _costs(state: Reading, status: Reading, now_unix_s: float) -> Text:
    lines = Text()
    residuals = state.part("residuals")
    numbers = [residuals.number(name) for name in ("least", "median", "most")]
    if None not in numbers:
        lines.append("step time, live/profile  ", style="bold")
        lines.append(" … ".join(f"{value:.2f}" for value in numbers if value is not None))
        lines.append("\n")
    account = state.part("exploration")
    spent, balance = account.number("spent_s"), account.number("balance_s")
    if spent is not None and balance is not None:
        started = status.number("started_unix_s")
        up_s = 0.0 if started is None else now_unix_s - started
        share = f" ({spent / up_s:.2%})" if up_s > 0 else ""
        lines.append("exploring cost  ", style="bold")
        lines.append(f"{spent:.2f} s{share}, {balance:.2f} s left\n")
    guard = state.part("guard")
    falls, quarantine = guard.number("falls") or 0, guard.number("quarantine_s") or 0
    lines.append("guard  ", style="bold")
    lines.append(f"{falls:.0f} falls" if falls else "quiet", style="yellow" if falls else "")
    if quarantine:
        lines.append(f", quarantine for {quarantine:.0f} s", style="bold yellow")
    if excluded := guard.numbers("excluded_lengths"):
        lines.append(f"\nkept out: K = {', '.join(f'{k:.0f}' for k in excluded)}", style="yellow")
    if state.flag("off"):
        lines.append("\nadapting is off until the next promotion", style="bold red")
    return lines


def _decisions(controller: Reading) -> list[RenderableType]:
    if not controller:
        return []
    counts = controller.part("decisions_by_kind")
    kinds = ("hold", "swap", "explore", "revert", "off")
    told = [f"{n:.0f} {kind}" for kind in kinds if (n := counts.number(kind))]
    title = Text("last decisions", style="bold")
    title.append(f"  {', '.join(told)}" if told else "  none yet", style="not bold dim")
    blocks: list[RenderableType] = [Text(""), title]
    newest = controller.parts("last_decisions")[::-1]
    changes = [decision for decision in newest if decision.text("kind") != "explore"]
    probes = [decision for decision in newest if decision.text("kind") == "explore"]
    for decision in [*changes[:DECISIONS], *probes[:PROBES]]:  # probes are many and change nothing
        kind = decision.text("kind")
        style = {"revert": "bold yellow", "off": "bold red", "swap": "bold"}.get(kind, "")
        line = Text(f"{_clock(decision.number('unix_s'))} ", overflow="fold")
        line.append(kind, style=style)
        line.append(f"  {decision.text('reason')}")
        if gain := decision.number("predicted_gain"):
            line.append(f" ({gain:+.1%})", style="green" if gain > 0 else "yellow")
        if not decision.flag("applied"):
            line.append(" [only reported]", style="dim")
        blocks.append(line)
    return blocks


def _refusals(controller: Reading) -> list[RenderableType]:
    refused = controller.parts("last_refusals")
    if not refused:
        return []
    blocks: list[RenderableType] = [Text(""), Text("not used", style="bold yellow")]
    for refusal in refused[: -REFUSALS - 1 : -1]:
        times = refusal.number("times") or 1
        more = f" ({times:.0f} times)" if times > 1 else ""
        when = _clock(refusal.number("last_unix_s"))
        blocks.append(Text(f"{when} {refusal.text('reason')}{more}", overflow="fold"))
    return blocks


def _clock(unix_s: float | None) -> str:
    if unix_s is None or not 0 <= unix_s < 4e9:
        return "--:--:--"
    return datetime.fromtimestamp(unix_s, UTC).strftime("%H:%M:%S")
