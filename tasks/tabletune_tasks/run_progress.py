"""Shows a library's progress in Prefect: sentences in the run's log, a bar as an artifact."""

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger
from prefect.runtime import task_run

#: Seconds between two updates of a bar, and between two lines about it.
BAR_EVERY_S, LINE_EVERY_S = 5.0, 30.0


def run_logger() -> Any:
    """The run's logger; outside of a run a plain one."""
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("tabletune.flows")


class RunProgress:
    """A `Progress` whose bar is one artifact a task run, however many steps the task has.

    Nothing here may stop a measurement: a server that does not answer costs the bar only.

    Args:
        key: names the artifacts; lower-case letters, digits and dashes.
        now_s: the clock.
    """

    def __init__(self, key: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._key, self._now_s = key, now_s
        self._total: float | None = None
        self._bar: UUID | None = None
        self._bar_of = ""
        self._stage = ""
        self._shown_s = self._told_s = now_s()

    def start(self, name: str, total: float | None = None) -> None:
        here = str(task_run.id or "")
        if here != self._bar_of:
            self._finish()
            self._bar_of = here
        self._stage, self._total = name, total
        run_logger().info("%s", name)
        if self._bar is not None:
            self._show(0.0)
        elif total:
            with contextlib.suppress(Exception):
                made = create_progress_artifact(0.0, key=f"{self._key}-progress", description=name)
                self._bar = made if isinstance(made, UUID) else None

    def advance(self, done: float, note: str = "") -> None:
        now_s = self._now_s()
        if now_s - self._told_s >= LINE_EVERY_S:
            self._told_s = now_s
            run_logger().info("%s: %s", self._stage, note or f"{done:g} of {self._total}")
        if self._bar is not None and self._total and now_s - self._shown_s >= BAR_EVERY_S:
            self._shown_s = now_s
            self._show(min(100.0, 100.0 * done / self._total))

    def say(self, text: str) -> None:
        run_logger().info("%s", text)

    def _finish(self) -> None:
        if self._bar is not None:
            self._show(100.0)
            self._bar = None

    def _show(self, percent: float) -> None:
        bar = self._bar
        if bar is not None:
            with contextlib.suppress(Exception):
                update_progress_artifact(bar, progress=percent, description=self._stage)
