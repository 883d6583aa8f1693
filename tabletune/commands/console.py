"""The terminal: rich progress on standard error, results on standard output."""

import json
import time
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

#: Without a terminal a line is printed at most this often, in seconds.
PLAIN_EVERY_S = 5.0


def terminal(errors: bool = False) -> Console:
    """The console of results, or of `errors`: words of others are shown as they are.

    rich would put 👍 for `:+1:`, in a path as well.
    """
    return Console(stderr=errors, highlight=False, emoji=False)


class TerminalProgress:
    """Shows stages as rich progress bars; as plain lines where there is no terminal.

    Everything goes to standard error, so that standard output holds results only.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or terminal(errors=True)
        self._live = self.console.is_terminal
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[stage]}", style="bold", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("{task.description}", markup=False),
            console=self.console,
        )
        self._task: TaskID | None = None
        self._stage, self._total, self._begun_s, self._printed_s = "", None, 0.0, 0.0

    def __enter__(self) -> "TerminalProgress":
        if self._live:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._bars.stop()

    def start(self, name: str, total: float | None = None) -> None:
        self._stage, self._total = name, total
        self._begun_s, self._printed_s = time.monotonic(), 0.0
        if self._live:
            if self._task is not None:
                finished = self._bars.tasks[self._bars.task_ids.index(self._task)]
                self._bars.update(self._task, completed=finished.total or finished.completed or 1)
                self._bars.stop_task(self._task)
            self._task = self._bars.add_task("", total=total, stage=name)
        else:
            self.console.print(f"{name} …", markup=False)

    def advance(self, done: float, note: str = "") -> None:
        if self._live and self._task is not None:
            self._bars.update(self._task, completed=done, description=note)
            return
        now = time.monotonic()
        if now - self._printed_s >= PLAIN_EVERY_S:
            self._printed_s = now
            line = f"  {self._stage}: {self._plain(done, now)}{note}"
            self.console.print(line, soft_wrap=True, markup=False)

    def say(self, text: str) -> None:
        self.console.print(f"  {text}", soft_wrap=True, markup=False)

    def _plain(self, done: float, now: float) -> str:
        if not self._total or done <= 0 or done > self._total:  # more work than foreseen
            return f"{now - self._begun_s:.0f} s, "
        left_s = (now - self._begun_s) * max(self._total - done, 0) / done
        return f"{100 * done / self._total:.0f} %, about {left_s:.0f} s left, "


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    print(json.dumps(value, indent=2, sort_keys=True, allow_nan=False))
