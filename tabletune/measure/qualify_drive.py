"""Drives a sacrificial engine through draft lengths, and notices when it dies or hangs."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from tabletune.measure.api import EngineAddress, EngineApiError
from tabletune.measure.clock import Clock
from tabletune.measure.load import ClosedLoop, LoadCounts, LoadRequest
from tabletune.measure.metrics import MetricsError, parse_counters
from tabletune.measure.qualify_cells import view_steps
from tabletune.measure.quiet import Quiet
from tabletune.measure.steps import StepBatch, StepReader, concatenate
from tabletune.records.qualification import FaultKind

T = TypeVar("T")

#: How long a dying engine may take to be noticed as dead after a call failed.
DEATH_NOTICE_S = 5.0
POLL_MOST_S = 0.25
#: The plugin takes no longer schedule at once.
MOST_ENTRIES = 1000


class QualifyApi(Protocol):
    """What is needed of measure/api.py's EngineApi."""

    address: EngineAddress

    def steps(self, since: int = 0, limit: int = 20_000) -> StepBatch: ...
    def pin(self, draft_length: int | None) -> None: ...
    def pin_schedule(self, schedule: list[tuple[int, int]], repeat: int = 1) -> None: ...
    def metrics_text(self) -> str: ...
    def complete(self, model: str, prompt: Any, max_tokens: int, **sampling: Any) -> Any: ...


class Load(Protocol):
    """Open requests, as measure/load.py's ClosedLoop keeps them."""

    counts: LoadCounts
    done: threading.Event

    def shrink(self, concurrency: int) -> None: ...


OpenLoad = Callable[[Sequence[LoadRequest], int], AbstractContextManager[Load]]


def closed_loops(address: EngineAddress, model: str) -> OpenLoad:
    """Loads against a real engine."""
    return lambda requests, concurrency: ClosedLoop(address, model, requests, concurrency)


class EngineFault(RuntimeError):
    """The engine died, stopped stepping, or refuses to serve; nothing more can be tried on it.

    Attributes:
        fault: ``crash``, ``hang`` or ``refused``.
        evidence: the log's last lines, or what was waited for.
    """

    def __init__(self, fault: FaultKind, evidence: str) -> None:
        self.fault: FaultKind = fault
        self.evidence = evidence
        super().__init__(f"{fault}: {evidence}")


class Driver:
    """Runs walks and keeps what the engine recorded.

    Args:
        died: the engine's last log lines once it has died, None while it lives.
        hang_s: no new step for so long (measure/quiet.py), while requests are open, is a hang.

    Attributes:
        doing: what is being tried, in words, for the evidence of a crash.
        last: batch size, length verified and length chosen in the last step read.
        tell: called during a walk with the share of it that is done.
    """

    def __init__(
        self,
        api: QualifyApi,
        open_load: OpenLoad,
        clock: Clock,
        died: Callable[[], str | None],
        hang_s: float,
    ) -> None:
        self.api, self.open_load, self.clock = api, open_load, clock
        self._died, self.hang_s = died, hang_s
        self._kept = list[StepBatch]()
        self.doing = "the first request"
        self.last: tuple[int, int, int] = (0, -1, -1)
        self.tell: Callable[[float], None] = lambda share: None
        self._reader: StepReader | None = None

    def begin(self) -> None:
        """Start reading steps, from the next one on.

        Raises:
            EngineFault: the engine died, or does not answer.
        """
        self._reader = self.call(lambda: StepReader(self.api))

    def call(self, ask: Callable[[], T]) -> T:
        """Ask the engine something.

        Raises:
            EngineFault: it died, or does not answer.
        """
        try:
            return ask()
        except EngineApiError as error:
            raise self._fault_of(error) from error

    def take(self, read: bool = True) -> StepBatch | None:
        """All steps kept since the last take, joined: the round's record. None if there are none.

        Args:
            read: ask the engine for the last steps first; not when it has died.
        """
        if read:
            self.read_steps()
        kept, self._kept = self._kept, []
        return concatenate(kept) if kept else None

    def wait_ready(self, load: Load, batch_size: int, patience: float = 1.0) -> None:
        """Return once a step of exactly `batch_size` requests, none prefilling, was seen.

        Gives up quietly after `patience` times `hang_s` with steps but none such (a KV cache
        may be too small for the batch): the analysis says what is missing.

        Raises:
            EngineFault: the engine died, hangs, or refuses the requests.
        """
        give_up_s = self.clock.now_s() + patience * self.hang_s
        quiet = Quiet(self.clock)
        while self.clock.now_s() < give_up_s:
            batch = self._read(load, quiet)
            if ((batch.batch_size == batch_size) & (batch.prefill_requests == 0)).any():
                return
            self.clock.sleep_s(0.02)

    def walk(self, load: Load, schedule: list[tuple[int, int]], repeat: int = 1) -> StepBatch:
        """Walk through a schedule of any length; the steps the engine took meanwhile.

        Raises:
            EngineFault: the engine died, hangs, or refuses the requests.
        """
        starts = range(0, len(schedule), MOST_ENTRIES)
        parts = [schedule[start : start + MOST_ENTRIES] for start in starts]
        return concatenate([self._walk(load, part, repeat) for part in parts])

    def _walk(self, load: Load, schedule: list[tuple[int, int]], repeat: int) -> StepBatch:
        self._read(load, Quiet(self.clock))
        self._begin_walk(load, schedule, repeat)
        total = left = repeat * sum(steps for _, steps in schedule)
        seen = list[StepBatch]()
        quiet = Quiet(self.clock)
        step_s = 0.02
        while True:
            batch = self._read(load, quiet)
            seen.append(batch)
            if len(batch):
                left -= len(batch)
                self.tell(min(1.0, 1.0 - left / total))
                usable = batch.interval_s[view_steps(batch).decode_only]
                step_s = float(usable.mean()) if len(usable) else step_s
            if left <= 0:
                return concatenate(seen)
            self.clock.sleep_s(min(max(left * step_s, 0.004), POLL_MOST_S))

    def _begin_walk(self, load: Load, schedule: list[tuple[int, int]], repeat: int) -> None:
        """Have the engine begin the schedule; once more if it was late to say so and yet answers.

        A machine that stands still lets answers be too late without any hang. What the engine
        walked meanwhile is no part of this walk, which begins anew.
        """
        try:
            self.api.pin_schedule(schedule, repeat)
        except EngineApiError as error:
            late = "Timeout" in error.found and self._died() is None and self._answers()
            if not late:
                raise self._fault_of(error) from error
            self.call(lambda: self.api.pin_schedule(schedule, repeat))
            self._read(load, Quiet(self.clock))

    def _answers(self) -> bool:
        try:
            return bool(self.api.metrics_text())
        except EngineApiError:
            return False

    def check_alive(self, quiet: Quiet, load: Load | None = None) -> None:
        """Raise if the engine died, hangs, or refuses the requests of `load`.

        Raises:
            EngineFault: with the kind and evidence.
        """
        tail = self._died()
        if tail is not None:
            raise EngineFault("crash", self._where(f"the engine died; its log ends: {tail}"))
        if load is not None and load.counts.failed:
            self._judge_refusal(load.counts.last_error)
        if load is not None and load.done.is_set():
            done = f"{load.counts.completed} were answered"
            raise EngineFault("refused", self._where(f"the requests ended by themselves, {done}"))
        if quiet.quiet_s > self.hang_s:
            told = f"no step for {self.hang_s:.0f} s while requests were open"
            raise EngineFault("hang", self._where(f"{told}; {self._running()}"))

    def _running(self) -> str:
        try:
            running = parse_counters(self.api.metrics_text()).running
        except (EngineApiError, MetricsError) as error:
            return f"its metrics page does not say how many run ({error})"
        return f"by its metrics page {running:.0f} requests run"

    def _judge_refusal(self, error: str) -> None:
        if "HTTP 4" in error:
            raise _refused(error)
        tail = self._wait_for_death()
        told = f"it answered with an error: {error}"
        raise EngineFault("crash", self._where(f"{told}; its log ends: {tail}" if tail else told))

    def _read(self, load: Load, quiet: Quiet) -> StepBatch:
        batch = self.read_steps()
        quiet.look(bool(len(batch)))
        self.check_alive(quiet, load)
        return batch

    def read_steps(self) -> StepBatch:
        """Read and keep what was recorded since the last read.

        Raises:
            EngineFault: the engine died, or does not answer.
        """
        if self._reader is None:
            self.begin()
        assert self._reader is not None
        batch = self.call(self._reader.read_new)
        self._kept.append(batch)
        if len(batch):
            before = int(batch.draft_length[-2]) if len(batch) > 1 else self.last[2]
            self.last = (int(batch.batch_size[-1]), before, int(batch.draft_length[-1]))
        return batch

    def _where(self, text: str) -> str:
        size, old, new = self.last
        if size == 0:
            return f"during {self.doing}: {text}"
        lengths = f"draft length {new}" if old in (new, -1) else f"the switch {old} → {new}"
        return f"during {self.doing}; last step read: batch size {size}, {lengths}; {text}"

    def _wait_for_death(self) -> str | None:
        deadline_s = self.clock.now_s() + DEATH_NOTICE_S
        while (tail := self._died()) is None and self.clock.now_s() < deadline_s:
            self.clock.sleep_s(0.1)
        return tail

    def _fault_of(self, error: EngineApiError) -> EngineFault:
        if "HTTP 4" in error.found:
            return _refused(str(error))
        tail = self._wait_for_death()
        if tail is not None:
            return EngineFault("crash", self._where(f"the engine died; its log ends: {tail}"))
        if "Timeout" in error.found:
            return EngineFault("hang", self._where(f"it does not answer: {error}"))
        return EngineFault("crash", self._where(f"it answered with an error: {error}"))


def _refused(error: str) -> EngineFault:
    return EngineFault(
        "refused",
        f"the engine refuses a request: {error}; give prompts and token counts that fit its "
        "context length",
    )
