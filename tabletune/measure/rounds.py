"""Interleaved rounds: every policy once per round, in shuffled order, on the same requests.

Each round takes the next stretch of the requests, and each policy of the round replays it from
its start; rounds read from metrics pages all take the first stretch. On an engine with the
plugin the policy is put in force just before; other engines are booted with theirs. Only one
engine has load at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tabletune.measure.clock import Clock
from tabletune.measure.driven import Load, MetricsSource, OpenLoad
from tabletune.measure.load import LoadRequest
from tabletune.measure.measurements import Key, Measurements
from tabletune.measure.progress import Progress
from tabletune.measure.steps import StepReader
from tabletune.measure.windows import (
    LoadEndedError,
    MetricsWindow,
    PolicyRun,
    WindowOptions,
    Work,
    metrics_window,
    plugin_engine,
    step_window,
    wait_until_idle,
)
from tabletune.records.policy import never_drafts

#: A stream has so many requests for each that a window needs: a window never runs out.
SPARE = 8


@dataclass
class Bench:
    """What all rounds share: requests, windows, time, chance and who is told.

    `windows_done` counts the windows measured so far, for the progress.
    """

    requests: tuple[LoadRequest, ...]
    windows: WindowOptions
    clock: Clock
    rng: np.random.Generator
    progress: Progress
    open_load: OpenLoad
    windows_done: int = 0
    _warmed: dict[MetricsSource, set[int]] = field(default_factory=dict[MetricsSource, set[int]])

    def work(self, concurrency: int, policy: str = "", by_metrics: bool = False) -> Work:
        """The work of one window; less for a policy that never drafts."""
        work = self.windows.work(concurrency, self._mean_output_tok(), by_metrics)
        return work.scaled(self.windows.off_share) if never_drafts(policy) else work

    def needed(self, concurrency: int) -> int:
        """Requests that one window touches at most, about, whatever it is read from."""
        works = (self.work(concurrency, by_metrics=by_metrics) for by_metrics in (False, True))
        tokens = max(work.skip_tok + work.work_tok for work in works)
        return int(np.ceil(tokens / self._mean_output_tok())) + concurrency

    def _mean_output_tok(self) -> float:
        return float(np.mean([r.max_tokens for r in self.requests]))

    @contextmanager
    def load(self, run: PolicyRun, concurrency: int, stretch: int) -> Iterator[Load]:
        """The closed loop of a stretch of the requests on the run's engine."""
        needed = self.needed(concurrency)
        stream = staggered(self.requests, concurrency, stretch * needed, needed * SPARE)
        with self.open_load(run.engine, run.model, stream, concurrency) as load:
            yield load

    def warm(self, run: PolicyRun, concurrency: int, stretch: int) -> None:
        """Send the stretch's prompts that the engine has not had yet, for one token each.

        Otherwise the first policy of a round would compute the prompts for the others, which
        find them in the prefix cache.
        """
        had = self._warmed.setdefault(run.engine, set())
        count, needed = len(self.requests), self.needed(concurrency)
        numbers = range(stretch * needed, (stretch + 1) * needed)
        new = [i for i in dict.fromkeys(n % count for n in numbers) if i not in had]
        if not new:
            return
        prompts = [LoadRequest(self.requests[i].prompt, 1, self.requests[i].extra) for i in new]
        with self.open_load(run.engine, run.model, prompts, concurrency, once=True) as load:
            if not load.done.wait(self.windows.timeout_s) or not load.counts.completed:
                raise LoadEndedError("no prompt was answered", load.counts)
        had.update(new)

    def begin(self, what: str, windows: int | None = None) -> None:
        """Say what is measured now, in so many windows if that is known."""
        self.windows_done = 0
        self.progress.start(what, windows)

    def tell(self, policy: str, concurrency: int, round_number: int) -> None:
        """Say which window begins."""
        note = f"concurrency {concurrency}, round {round_number + 1}, {policy}"
        self.progress.advance(self.windows_done, note)
        self.windows_done += 1


def staggered(
    requests: Sequence[LoadRequest], concurrency: int, first: int, count: int
) -> list[LoadRequest]:
    """A stream from request `first` on, whose first `concurrency` end one after the other.

    Without this all requests would start, and end, together, and a window would see some
    phases of them more often than others.
    """
    stream = [requests[(first + i) % len(requests)] for i in range(max(count, concurrency))]
    for i in range(concurrency):
        tokens = max(1, round(stream[i].max_tokens * (i + 1) / concurrency))
        stream[i] = LoadRequest(stream[i].prompt, tokens, stream[i].extra)
    return stream


#: Measures the window of a load and notes it under a round's number.
Measure = Callable[[Load, Key, int], None]
#: Called with a run just before its load opens.
Prepare = Callable[[PolicyRun], Measure]


def play(
    bench: Bench,
    runs: Sequence[PolicyRun],
    concurrency: int,
    rounds: range,
    prepare: Prepare,
    stretch: int | None = None,
) -> None:
    """Rounds of all `runs` at one concurrency.

    Args:
        stretch: the stretch of the requests that all of them take; None: each its own.
    """
    for number in rounds:
        for index in bench.rng.permutation(len(runs)).tolist():
            run = runs[index]
            bench.tell(run.policy, concurrency, number)
            taken = number if stretch is None else stretch
            run.apply()
            bench.warm(run, concurrency, taken)
            measure = prepare(run)
            with bench.load(run, concurrency, taken) as load:
                measure(load, Key(run.policy, concurrency), number)


def by_steps(bench: Bench, into: Measurements, boot: str) -> Prepare:
    """Windows read from engine steps, on engines with the plugin."""

    def prepare(run: PolicyRun) -> Measure:
        wait_until_idle(run.engine, bench.clock)
        reader = StepReader(plugin_engine(run))

        def measure(load: Load, key: Key, number: int) -> None:
            work = bench.work(key.concurrency, run.policy)
            window = step_window(run, reader, load, work, bench.windows, bench.clock)
            series = into.add(key, number, window.rate_tok_s, boot, run.kind)
            series.note_steps(window.lengths, window.steps)

        return measure

    return prepare


def by_metrics(
    bench: Bench, into: Measurements, boot: str, seen: dict[Key, list[MetricsWindow]]
) -> Prepare:
    """Windows read from metrics pages; they are kept in `seen`, too."""

    def prepare(run: PolicyRun) -> Measure:
        start = wait_until_idle(run.engine, bench.clock)

        def measure(load: Load, key: Key, number: int) -> None:
            work = bench.work(key.concurrency, run.policy, by_metrics=True)
            window = metrics_window(run.engine, start, load, work, bench.windows, bench.clock)
            into.add(key, number, window.rate_tok_s, boot, run.kind)
            seen.setdefault(key, []).append(window)

        return measure

    return prepare
