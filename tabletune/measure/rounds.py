"""Interleaved rounds: every policy once per round, in shuffled order, window by window.

On an engine with the plugin one closed loop stays open for all rounds of a concurrency and
tables are swapped under it, so that neighbouring windows see the same requests at almost the
same point. Other engines need a load of their own for each window; only one engine has load
at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tabletune.measure.clock import Clock
from tabletune.measure.driven import Load, OpenLoad
from tabletune.measure.load import LoadRequest
from tabletune.measure.measurements import Key, Measurements
from tabletune.measure.progress import Progress
from tabletune.measure.steps import StepReader
from tabletune.measure.windows import (
    MetricsWindow,
    PolicyRun,
    WindowOptions,
    metrics_window,
    plugin_engine,
    ramp_up,
    step_window,
)

#: The closed loop cycles through this many requests at most before it repeats the first ones,
#: which are shortened.
STREAM_REQUESTS = 20_000


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

    def tell(self, policy: str, concurrency: int, round_number: int) -> None:
        """Say which window begins."""
        note = f"concurrency {concurrency}, round {round_number + 1}, {policy}"
        self.progress.advance(self.windows_done, note)
        self.windows_done += 1

    @contextmanager
    def load(self, run: PolicyRun, concurrency: int) -> Iterator[Load]:
        """A closed loop on the run's engine, once all its requests run."""
        stream = staggered(self.requests, concurrency)
        with self.open_load(run.engine, run.model, stream, concurrency) as load:
            ramp_up(run, load, concurrency, self.windows, self.clock)
            yield load


def staggered(requests: Sequence[LoadRequest], concurrency: int) -> list[LoadRequest]:
    """A long stream whose first `concurrency` requests end one after the other.

    Without this all requests would start, and end, together, and a short window would see
    only one phase of them.
    """
    count = len(requests)
    stream = [requests[i % count] for i in range(max(STREAM_REQUESTS, concurrency))]
    for i in range(concurrency):
        share = (i + 1) / concurrency
        tokens = max(1, round(stream[i].max_tokens * share))
        stream[i] = LoadRequest(stream[i].prompt, tokens, stream[i].extra)
    return stream


def rounds_by_steps(
    bench: Bench,
    runs: Sequence[PolicyRun],
    concurrency: int,
    rounds: int,
    into: Measurements,
    more: Callable[[int], Sequence[PolicyRun]] = lambda _: (),
    boot: str = "measured",
) -> None:
    """Measure `runs`, all on one engine with the plugin, at one concurrency.

    Args:
        more: called with the number of rounds done, after the last one and again after each
            further one; names the runs of the next round, none to end.
    """
    with bench.load(runs[0], concurrency) as load:
        reader = StepReader(plugin_engine(runs[0]))
        for number in range(rounds):
            _step_round(bench, runs, concurrency, number, (reader, load), into, boot)
        number = rounds
        while wanted := more(number):
            _step_round(bench, wanted, concurrency, number, (reader, load), into, boot)
            number += 1


def _step_round(
    bench: Bench,
    runs: Sequence[PolicyRun],
    concurrency: int,
    number: int,
    load: tuple[StepReader, Load],
    into: Measurements,
    boot: str,
) -> None:
    for index in bench.rng.permutation(len(runs)).tolist():
        run = runs[index]
        bench.tell(run.policy, concurrency, number)
        window = step_window(run, *load, bench.windows, bench.clock)
        key = Key(run.policy, concurrency)
        into.add(key, number, window.rate_tok_s, boot, run.kind).lengths |= window.lengths


def rounds_by_metrics(
    bench: Bench,
    runs: Sequence[PolicyRun],
    concurrency: int,
    rounds: int,
    into: Measurements,
    boot: str,
    first_round: int = 0,
) -> dict[str, list[MetricsWindow]]:
    """Measure `runs`, on one engine or on several, at one concurrency; the windows by policy."""
    windows: dict[str, list[MetricsWindow]] = {run.policy: [] for run in runs}
    for number in range(first_round, first_round + rounds):
        for index in bench.rng.permutation(len(runs)).tolist():
            run = runs[index]
            bench.tell(run.policy, concurrency, number)
            run.apply()
            with bench.load(run, concurrency) as load:
                window = metrics_window(run.engine, load, bench.windows, bench.clock)
            into.add(Key(run.policy, concurrency), number, window.rate_tok_s, boot, run.kind)
            windows[run.policy].append(window)
    return windows
