"""One throughput window of one policy, read from engine steps or from the metrics page.

A window is a fixed amount of work: it begins once all requests of a closed loop decode, and
ends when so many tokens came out since. All policies of a round replay the same requests from
the same start. Under greedy decoding they then produce nearly the same text, so that neither
lucky text nor the prompts' computation falls to one policy only. That matters: with an n-gram
drafter the tokens per step differ more from one passage to the next than from one draft
length to the next.

Two instruments; only windows of one instrument are ever compared with each other.

- *steps*: tokens and time between two engine steps, in the engine's own clock. Needs the
  plugin.
- *metrics*: growth of the counter of generated tokens over wall time, each end taken at the
  moment the counter moves, so that its granularity (a step) costs nothing but the polling
  interval. Works with every engine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from tabletune.measure.clock import Clock
from tabletune.measure.driven import DrivenEngine, Load, MetricsSource
from tabletune.measure.load import LoadCounts
from tabletune.measure.metrics import Counters, parse_counters
from tabletune.measure.steps import StepBatch, StepReader, concatenate

EngineKind = Literal["measured", "stock", "no_speculation"]
#: Of the steps of a window so many may have another length than asked for: a swap falls
#: between two steps, so none should.
OTHER_LENGTH_SHARE = 0.02


class LoadEndedError(RuntimeError):
    """The requests that kept the engine busy ended, or brought nothing.

    Attributes: `found`, `counts` (what the load saw).
    """

    def __init__(self, found: str, counts: LoadCounts) -> None:
        self.found, self.counts = found, counts
        super().__init__(
            f"expected requests to run without end, found that {found} ({counts.completed} done, "
            f"{counts.failed} failed, last error: {counts.last_error!r}); see the engine's log"
        )


class LengthNotFollowedError(RuntimeError):
    """An engine ran other draft lengths than its table says.

    Attributes: `policy`, `batch_size`, `expected`, `found` (draft lengths).
    """

    def __init__(self, policy: str, batch_size: int, expected: int, found: int) -> None:
        self.policy, self.batch_size = policy, batch_size
        self.expected, self.found = expected, found
        super().__init__(
            f"policy {policy}: expected draft length {expected} at batch size {batch_size}, found "
            f"{found} in the engine's steps; see the plugin's status: another client may be "
            "changing the table, or this engine ignores it"
        )


@dataclass(frozen=True)
class PolicyRun:
    """A policy, and how to put it in force on an engine.

    Attributes:
        policy: its name in the verdict.
        engine: where it runs.
        model: the name under which that engine serves.
        apply: puts it in force; does nothing for an engine that was booted with it.
        lookup: draft length by batch size, index 0 unused; empty if it is not to be checked.
        kind: which engine of the verdict this is.
    """

    policy: str
    engine: MetricsSource
    model: str
    apply: Callable[[], None]
    lookup: tuple[int, ...] = ()
    kind: EngineKind = "measured"


@dataclass(frozen=True)
class WindowOptions:
    """How much work a window is.

    Attributes:
        requests_per_slot: output of so many mean requests for each open one.
        min_tok: a window has at least so many output tokens.
        poll_s: between two looks at the metrics page around a window's ends.
        ramp_s: the longest wait until all requests decode.
        timeout_s: a window that takes longer is given up.
    """

    requests_per_slot: float = 1.0
    min_tok: int = 256
    poll_s: float = 0.03
    ramp_s: float = 30.0
    timeout_s: float = 300.0

    def work_tok(self, concurrency: int, mean_output_tok: float) -> int:
        """Output tokens of one window."""
        return max(self.min_tok, round(self.requests_per_slot * concurrency * mean_output_tok))


@dataclass(frozen=True)
class StepWindow:
    """A window read from steps: throughput, and the draft lengths that its steps used."""

    rate_tok_s: float
    lengths: frozenset[int]


def step_window(
    run: PolicyRun,
    reader: StepReader,
    load: Load,
    work_tok: int,
    options: WindowOptions,
    clock: Clock,
) -> StepWindow:
    """Measure throughput over the next `work_tok` tokens of a load that is under way.

    Raises:
        LoadEndedError: the load ended, or no steps come.
        LengthNotFollowedError: the engine runs other lengths than `run.lookup` says.
    """
    reader.read_new()
    batches: list[StepBatch] = []
    deadline_s = clock.now_s() + options.timeout_s
    wait_s = 0.05
    while True:
        clock.sleep_s(min(max(wait_s, 0.02), 0.5))
        batch = reader.read_new()
        if batch.lost:
            batches = []  # a hole in the record would count time without its tokens
        batches.append(batch)
        steps = concatenate(batches)
        emitted = np.cumsum(steps.output_tok[1:])
        if len(emitted) and emitted[-1] >= work_tok:
            break
        if len(emitted) and emitted[-1] > 0:
            elapsed_s = float(steps.time_s[-1] - steps.time_s[0])
            wait_s = elapsed_s * (work_tok / float(emitted[-1]) - 1)
        _refuse_stopped(load, clock.now_s() > deadline_s, "engine steps")
    last = 1 + int(np.searchsorted(emitted, work_tok))
    counted = steps.select(np.arange(len(steps)) <= last)
    _check_lengths(run, counted)
    elapsed_s = float(counted.time_s[-1] - counted.time_s[0])
    rate_tok_s = float(counted.output_tok[1:].sum()) / elapsed_s
    lengths, uses = np.unique(counted.draft_length, return_counts=True)
    usual = lengths[uses > OTHER_LENGTH_SHARE * len(counted)]
    return StepWindow(rate_tok_s, frozenset(usual.tolist()))


def _check_lengths(run: PolicyRun, steps: StepBatch) -> None:
    if not run.lookup:
        return
    lookup = np.asarray(run.lookup)
    expected = lookup[np.minimum(steps.batch_size, len(lookup) - 1)]
    wrong = np.flatnonzero(steps.draft_length != expected)
    if len(wrong) > max(OTHER_LENGTH_SHARE * len(steps), 1):
        i = int(wrong[0])
        raise LengthNotFollowedError(
            run.policy, int(steps.batch_size[i]), int(expected[i]), int(steps.draft_length[i])
        )


@dataclass(frozen=True)
class MetricsWindow:
    """A window read from the metrics page.

    Attributes:
        rate_tok_s: output tokens per second.
        counts: what the counters grew by.
        running_low, running_high: least and most requests running at the looks.
    """

    rate_tok_s: float
    counts: Counters
    running_low: int
    running_high: int


def metrics_window(
    engine: MetricsSource, load: Load, work_tok: int, options: WindowOptions, clock: Clock
) -> MetricsWindow:
    """Measure throughput over the next `work_tok` tokens of a load that is under way.

    Raises:
        LoadEndedError: the load ended, or no tokens come. MetricsError: see there.
    """
    deadline_s = clock.now_s() + options.timeout_s
    before = _read(engine)
    while (now := _read(engine)).generation_tok == before.generation_tok:
        _refuse_stopped(load, clock.now_s() > deadline_s, "generated tokens")
        clock.sleep_s(options.poll_s)
    begin_s, before = clock.now_s(), now
    running = [before.running]
    while True:
        counts, elapsed_s = now - before, clock.now_s() - begin_s
        running.append(now.running)
        if counts.generation_tok >= work_tok:
            break
        _refuse_stopped(load, clock.now_s() > deadline_s, "generated tokens")
        left_s = elapsed_s * (work_tok / max(counts.generation_tok, 1.0) - 1)
        # Rarely at first: each look costs the engine's server some milliseconds.
        clock.sleep_s(min(max(left_s / 3, options.poll_s), 0.5))
        now = _read(engine)
    rate_tok_s = counts.generation_tok / elapsed_s
    return MetricsWindow(rate_tok_s, counts, int(min(running)), int(max(running)))


def _read(engine: MetricsSource) -> Counters:
    return parse_counters(engine.metrics_text())


def ramp_up(
    run: PolicyRun, load: Load, concurrency: int, options: WindowOptions, clock: Clock
) -> None:
    """Wait until all requests run and have begun to decode.

    Requests beyond the engine's largest batch never run, and fast ones may never all run at
    once: so it also ends when no more of them came for a tenth of `ramp_s`, and after `ramp_s`.

    Raises:
        LoadEndedError: the load ended.
    """
    begin_s = grown_s = clock.now_s()
    wanted = min(concurrency, len(run.lookup) - 1) if run.lookup else concurrency
    first: Counters | None = None
    most = 0.0
    while (now_s := clock.now_s()) < begin_s + options.ramp_s:
        counters = parse_counters(run.engine.metrics_text())
        first = first or counters
        if counters.running > most:
            most, grown_s = counters.running, now_s
        settled = most >= wanted or now_s - grown_s > options.ramp_s / 10
        # A few tokens each: by then nearly all prompts are computed.
        if settled and (counters - first).generation_tok >= 4 * most > 0:
            return
        clock.sleep_s(0.05)
        _refuse_stopped(load, False, "running requests")


def _refuse_stopped(load: Load, late: bool, what: str) -> None:
    if load.done.is_set() or late:
        found = "the load ended" if load.done.is_set() else f"no new {what} for too long"
        raise LoadEndedError(found, load.counts)


def plugin_engine(run: PolicyRun) -> DrivenEngine:
    """The run's engine, which must have the plugin."""
    return cast(DrivenEngine, run.engine)
