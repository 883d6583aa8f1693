"""One throughput window of one policy, read from engine steps or from the metrics page.

Both instruments give output tokens per second over about the same time. Only windows of one
instrument are ever compared with each other.

- *steps*: tokens emitted between two engine steps, over the time between them in the engine's
  own clock; exact to a step. Needs the plugin.
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
from tabletune.measure.profile_in_engine import SETTLE_STEPS
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
    """How long to look.

    Attributes:
        window_s: of a window read from steps. Short ones keep neighbours comparable: a
            change of the machine's speed within a round is not cancelled.
        min_steps: a window lasts at least so many steps.
        metrics_window_s: of a window read from the metrics page, which needs a load of its own.
        poll_s: between two looks at the metrics page around a window's ends.
        ramp_s: the longest wait until all requests decode.
        timeout_s: a window that takes longer is given up.
    """

    window_s: float = 0.5
    min_steps: int = 12
    metrics_window_s: float = 6.0
    poll_s: float = 0.02
    ramp_s: float = 30.0
    timeout_s: float = 60.0


@dataclass(frozen=True)
class StepWindow:
    """A window read from steps: throughput, and the draft lengths that its steps used."""

    rate_tok_s: float
    lengths: frozenset[int]


def step_window(
    run: PolicyRun, reader: StepReader, load: Load, options: WindowOptions, clock: Clock
) -> StepWindow:
    """Put a policy in force and measure its throughput.

    Raises:
        LoadEndedError: the load ended, or no steps come.
        LengthNotFollowedError: the engine runs other lengths than `run.lookup` says.
    """
    run.apply()
    reader.read_new()
    batches: list[StepBatch] = []
    deadline_s = clock.now_s() + options.timeout_s
    wait_s = options.window_s
    while True:
        clock.sleep_s(min(max(wait_s, 0.02), 0.5))
        batch = reader.read_new()
        if batch.lost:
            batches = []  # a hole in the record would count time without its tokens
        batches.append(batch)
        steps = concatenate(batches)
        span_s = 0.0
        if len(steps) > SETTLE_STEPS + options.min_steps:
            span_s = float(steps.time_s[-1] - steps.time_s[SETTLE_STEPS])
            if span_s >= options.window_s and steps.output_tok[SETTLE_STEPS + 1 :].any():
                break
        wait_s = options.window_s - span_s
        _refuse_stopped(load, clock.now_s() > deadline_s, "engine steps")
    first = SETTLE_STEPS
    end = int(np.searchsorted(steps.time_s, steps.time_s[first] + options.window_s)) + 1
    end = max(end, first + options.min_steps + 1)
    if not steps.output_tok[first + 1 : end].any():
        end = len(steps)  # one long prefill: until tokens came again
    index = np.arange(len(steps))
    counted = steps.select((index >= first) & (index < end))
    _check_lengths(run, counted)
    elapsed_s = float(counted.time_s[-1] - counted.time_s[0])
    rate_tok_s = float(counted.output_tok[1:].sum()) / elapsed_s
    return StepWindow(rate_tok_s, frozenset(counted.draft_length.tolist()))


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
    engine: MetricsSource, load: Load, options: WindowOptions, clock: Clock
) -> MetricsWindow:
    """Measure throughput from the metrics page.

    Raises:
        LoadEndedError: the load ended, or no tokens come. MetricsError: see there.
    """
    begin_s, before = _edge(engine, load, options, clock)
    running = [before.running]
    while (left_s := begin_s + options.metrics_window_s - clock.now_s()) > 0:
        clock.sleep_s(min(left_s, max(options.metrics_window_s / 8, options.poll_s)))
        running.append(parse_counters(engine.metrics_text()).running)
    end_s, after = _edge(engine, load, options, clock)
    counts = after - before
    running.append(after.running)
    rate_tok_s = counts.generation_tok / (end_s - begin_s)
    return MetricsWindow(rate_tok_s, counts, int(min(running)), int(max(running)))


def _edge(
    engine: MetricsSource, load: Load, options: WindowOptions, clock: Clock
) -> tuple[float, Counters]:
    """Wait until the counter of generated tokens moves; the time and the counters then."""
    deadline_s = clock.now_s() + options.timeout_s
    start = parse_counters(engine.metrics_text())
    while True:
        clock.sleep_s(options.poll_s)
        now_s = clock.now_s()
        counters = parse_counters(engine.metrics_text())
        if counters.generation_tok != start.generation_tok:
            return now_s, counters
        _refuse_stopped(load, now_s > deadline_s, "generated tokens")


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
        clock.sleep_s(0.1)
        _refuse_stopped(load, False, "running requests")


def _refuse_stopped(load: Load, late: bool, what: str) -> None:
    if load.done.is_set() or late:
        found = "the load ended" if load.done.is_set() else f"no new {what} for too long"
        raise LoadEndedError(found, load.counts)


def plugin_engine(run: PolicyRun) -> DrivenEngine:
    """The run's engine, which must have the plugin."""
    return cast(DrivenEngine, run.engine)
