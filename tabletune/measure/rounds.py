"""Interleaved rounds: every policy once per round, in shuffled order, on the same requests.

Each round takes the next stretch of the requests; each policy of the round replays it from
its start. On an engine with the plugin the policy is put in force just before; other engines
are booted with theirs. Only one engine has load at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tabletune.measure.clock import Clock
from tabletune.measure.driven import Load, OpenLoad
from tabletune.measure.load import LoadRequest
from tabletune.measure.measurements import Key, Measurements
from tabletune.measure.progress import Progress
from tabletune.measure.steps import StepReader
from tabletune.measure.windows import (
    LoadEndedError,
    MetricsWindow,
    PolicyRun,
    WindowOptions,
    metrics_window,
    plugin_engine,
    ramp_up,
    step_window,
)

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
    _warmed: dict[int, set[int]] = field(default_factory=dict[int, set[int]])

    def work_tok(self, concurrency: int) -> int:
        """Output tokens of one window."""
        mean = float(np.mean([r.max_tokens for r in self.requests]))
        return self.windows.work_tok(concurrency, mean)

    def needed(self, concurrency: int) -> int:
        """Requests that one window touches, about."""
        mean = float(np.mean([r.max_tokens for r in self.requests]))
        return int(np.ceil(self.work_tok(concurrency) / mean)) + concurrency

    @contextmanager
    def load(self, run: PolicyRun, concurrency: int, round_number: int) -> Iterator[Load]:
        """The round's closed loop on the run's engine, once all its requests decode."""
        needed = self.needed(concurrency)
        first = round_number * needed
        self._warm(run, concurrency, range(first, first + needed))
        stream = staggered(self.requests, concurrency, first, needed * SPARE)
        with self.open_load(run.engine, run.model, stream, concurrency) as load:
            ramp_up(run, load, concurrency, self.windows, self.clock)
            yield load

    def _warm(self, run: PolicyRun, concurrency: int, numbers: range) -> None:
        """Send prompts that the engine has not had yet, for one token each.

        Otherwise the first policy of a round would compute the prompts for the others, which
        find them in the prefix cache.
        """
        had = self._warmed.setdefault(id(run.engine), set())
        count = len(self.requests)
        new = [i for i in dict.fromkeys(n % count for n in numbers) if i not in had]
        if not new:
            return
        prompts = [LoadRequest(self.requests[i].prompt, 1, self.requests[i].extra) for i in new]
        with self.open_load(run.engine, run.model, prompts, concurrency, once=True) as load:
            if not load.done.wait(self.windows.timeout_s) or not load.counts.completed:
                raise LoadEndedError("no prompt was answered", load.counts)
        had.update(new)

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


#: Measures one window of a run and notes it.
Measure = Callable[[PolicyRun, Load, Key, int], None]


def play(
    bench: Bench,
    runs: Sequence[PolicyRun],
    concurrency: int,
    rounds: range,
    measure: Measure,
) -> None:
    """Rounds of all `runs` at one concurrency."""
    for number in rounds:
        for index in bench.rng.permutation(len(runs)).tolist():
            run = runs[index]
            bench.tell(run.policy, concurrency, number)
            run.apply()
            with bench.load(run, concurrency, number) as load:
                measure(run, load, Key(run.policy, concurrency), number)


def by_steps(bench: Bench, into: Measurements, boot: str) -> Measure:
    """Windows read from engine steps, on engines with the plugin."""

    def measure(run: PolicyRun, load: Load, key: Key, number: int) -> None:
        reader = StepReader(plugin_engine(run))
        work_tok = bench.work_tok(key.concurrency)
        window = step_window(run, reader, load, work_tok, bench.windows, bench.clock)
        into.add(key, number, window.rate_tok_s, boot, run.kind).lengths |= window.lengths

    return measure


def by_metrics(
    bench: Bench, into: Measurements, boot: str, seen: dict[Key, list[MetricsWindow]]
) -> Measure:
    """Windows read from metrics pages; they are kept in `seen`, too."""

    def measure(run: PolicyRun, load: Load, key: Key, number: int) -> None:
        work_tok = bench.work_tok(key.concurrency)
        window = metrics_window(run.engine, load, work_tok, bench.windows, bench.clock)
        into.add(key, number, window.rate_tok_s, boot, run.kind)
        seen.setdefault(key, []).append(window)

    return measure
