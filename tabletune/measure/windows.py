"""One throughput window of one policy, read from engine steps or from the metrics page.

A window is a fixed amount of work: it begins when a closed loop has put out so many tokens,
and ends after so many more. All policies of a round replay the same requests from the same
start. Under greedy decoding they then produce nearly the same text, so that neither
lucky text nor the prompts' computation falls to one policy only. That matters: with an n-gram
drafter the tokens per step differ more from one passage to the next than from one draft
length to the next.

Two instruments; only windows of one instrument are ever compared with each other.

- *steps*: tokens and time between two engine steps, in the engine's own clock. Needs the
  plugin.
- *metrics*: growth of the counter of generated tokens over wall time, each end taken at the
  moment the counter moves, so that its granularity (a step) costs nothing but the polling
  interval. A server that was held up shows old tokens, or new ones late, while its engine goes
  on: no end is taken at a look that was so slow, nor just after one. Works with every engine.
"""

from collections.abc import Callable, Mapping, Sequence
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
#: A server that is slow time and again is measured all the same: an end that is due is taken at
#: a quick look after so many slow ones, and at any look after twice as many.
SLOW_LOOKS = 4


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
        lookup: draft length by batch size, index 0 unused; empty if it is not known.
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
        off_share: windows of a policy that never drafts have this share of the work: without
            drafts no text is luckier than another, and little of it tells the throughput.
        metrics_share: windows read from metrics pages have this share of the work; above 1 only
            as far as that is more than `min_tok`. All of them replay the same text, so that luck
            of it falls to none.
        poll_s: between two looks at the metrics page around a window's ends.
        slow_look_s, settle_s: no end is taken at a look that took longer than the first, nor for
            the second after it: the server that was held up catches up with its engine.
        shortest_s: windows read from metrics pages go on for so long although their work is
            done: of a shorter one the looks at its ends are too large a part.
        ramp_tok: output tokens, for each open request, before the window begins: by then all
            requests decode.
        timeout_s: a window that takes longer is given up.
    """

    requests_per_slot: float = 1.0
    min_tok: int = 256
    off_share: float = 1.0
    metrics_share: float = 1.0
    poll_s: float = 0.03
    slow_look_s: float = 0.1
    settle_s: float = 0.5
    shortest_s: float = 0.5
    ramp_tok: int = 8
    timeout_s: float = 300.0

    def work(self, concurrency: int, mean_output_tok: float, by_metrics: bool = False) -> "Work":
        """The work of one window."""
        share = self.metrics_share if by_metrics else 1.0
        counted = round(share * self.requests_per_slot * concurrency * mean_output_tok)
        least = round(min(1.0, share) * self.min_tok)
        return Work(self.ramp_tok * concurrency, max(1, least, counted))


@dataclass(frozen=True)
class Work:
    """Output tokens from a load's start: `skip_tok` that do not count, `work_tok` that do."""

    skip_tok: int
    work_tok: int

    def scaled(self, share: float) -> "Work":
        """A share of the work that counts."""
        return Work(self.skip_tok, max(1, round(share * self.work_tok)))


@dataclass(frozen=True)
class StepWindow:
    """A window read from steps.

    Attributes:
        rate_tok_s: output tokens per second.
        lengths: the draft lengths that its steps used, but for stray ones.
        steps: how many steps it had, by batch size.
    """

    rate_tok_s: float
    lengths: frozenset[int]
    steps: Mapping[int, int]


def step_window(
    run: PolicyRun,
    reader: StepReader,
    load: Load,
    work: Work,
    options: WindowOptions,
    clock: Clock,
) -> StepWindow:
    """Measure throughput over a load's work.

    Args:
        reader: made before the load was opened, so that it sees the load's first step.

    Raises:
        LoadEndedError: the load ended, or no steps come.
        LengthNotFollowedError: the engine runs other lengths than `run.lookup` says.
    """
    end_tok = work.skip_tok + work.work_tok
    batches = [reader.read_new()]
    deadline_s = clock.now_s() + options.timeout_s
    while True:
        steps = concatenate(batches)
        emitted = np.cumsum(steps.output_tok)
        if len(emitted) and emitted[-1] >= end_tok:
            break
        _refuse_stopped(load, clock.now_s() > deadline_s, "engine steps")
        clock.sleep_s(_wait_s(steps, end_tok))
        batch = reader.read_new()
        # A hole in the record would count time without its tokens: begin behind it.
        batches = [batch] if batch.lost else [*batches, batch]
    first, last = np.searchsorted(emitted, [work.skip_tok, end_tok]).tolist()
    index = np.arange(len(steps))
    counted = steps.select((index >= first) & (index <= max(last, first + 1)))
    _check_lengths(run, counted)
    elapsed_s = float(counted.time_s[-1] - counted.time_s[0])
    rate_tok_s = float(counted.output_tok[1:].sum()) / elapsed_s
    lengths, uses = np.unique(counted.draft_length, return_counts=True)
    usual = lengths[uses > OTHER_LENGTH_SHARE * len(counted)]
    sizes, steps = np.unique(counted.batch_size, return_counts=True)
    by_size = dict(zip(sizes.tolist(), steps.tolist(), strict=True))
    return StepWindow(rate_tok_s, frozenset(usual.tolist()), by_size)


def _wait_s(steps: StepBatch, end_tok: int) -> float:
    """How long until `end_tok` tokens will be out at the pace so far; 0.02 to 0.5 s."""
    emitted = int(steps.output_tok.sum())
    if len(steps) < 2 or not emitted:
        return 0.05
    pace_tok_s = emitted / float(steps.time_s[-1] - steps.time_s[0])
    return min(max((end_tok - emitted) / pace_tok_s, 0.02), 0.5)


def _check_lengths(run: PolicyRun, steps: StepBatch) -> None:
    wrong = other_lengths(run.lookup, steps)
    if wrong is not None:
        raise LengthNotFollowedError(run.policy, *wrong)


def other_lengths(lookup: Sequence[int], steps: StepBatch) -> tuple[int, int, int] | None:
    """Batch size, expected and found draft length of the first step that leaves a table.

    None where at most one step, or `OTHER_LENGTH_SHARE` of them, does.

    Args:
        lookup: draft length by batch size, index 0 unused; empty: everything is right.
    """
    if not lookup or not len(steps):
        return None
    table = np.asarray(lookup)
    expected = table[np.minimum(steps.batch_size, len(table) - 1)]
    wrong = np.flatnonzero(steps.draft_length != expected)
    if len(wrong) <= max(OTHER_LENGTH_SHARE * len(steps), 1):
        return None
    i = int(wrong[0])
    return int(steps.batch_size[i]), int(expected[i]), int(steps.draft_length[i])


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
    engine: MetricsSource,
    start: Counters,
    load: Load,
    work: Work,
    options: WindowOptions,
    clock: Clock,
) -> MetricsWindow:
    """Measure throughput over a load's work, from the metrics page.

    Args:
        start: the counters before the load was opened.

    Raises:
        LoadEndedError: the load ended, or no tokens come. MetricsError: see there.
    """
    opened_s = clock.now_s()
    deadline_s = opened_s + options.timeout_s
    begin: _Look | None = None
    running: list[float] = []
    ends = _Ends(options, settled_s=opened_s)
    while True:
        look = _look(engine, clock)
        emitted = (look.counts - start).generation_tok
        if begin is None:
            due = emitted >= work.skip_tok
        else:
            running.append(look.counts.running)
            worked = (look.counts - begin.counts).generation_tok >= work.work_tok
            due = worked and look.at_s - begin.at_s >= options.shortest_s
        fit = ends.fit(look, due)
        if due and fit:
            if begin is not None:
                break
            begin = look
        _refuse_stopped(load, look.at_s > deadline_s, "generated tokens")
        # Rarely at first: each look costs the engine's server some milliseconds. Where a window
        # begins in the text matters more than that, so less rarely before it begins.
        end_tok = work.skip_tok
        if begin is not None:
            end_tok = (begin.counts - start).generation_tok + work.work_tok
        left_s = (look.at_s - opened_s) * (end_tok / max(emitted, 1.0) - 1)
        longest_s = 0.5 if begin is not None else 2 * options.poll_s
        wait_s = min(max(left_s / 3, options.poll_s), longest_s)
        clock.sleep_s(wait_s if fit or not due else max(wait_s, ends.settled_s - look.at_s))
    counts = look.counts - begin.counts
    rate_tok_s = counts.generation_tok / (look.at_s - begin.at_s)
    return MetricsWindow(rate_tok_s, counts, int(min(running)), int(max(running)))


@dataclass(frozen=True)
class _Look:
    """The counters as a metrics page showed them, when its answer was there, how long it took."""

    counts: Counters
    at_s: float
    took_s: float


@dataclass
class _Ends:
    """Which looks may be an end of a window: none that the server was held up for, nor one soon
    after, since it shows old tokens then. One that is slow time and again is measured all the same.

    Attributes:
        settled_s: when the server is believed again.
        slow_looks: since the next end was due.
    """

    options: WindowOptions
    settled_s: float
    slow_looks: int = 0

    def fit(self, look: _Look, due: bool) -> bool:
        """Whether this look may be one; if it is due, too, it counts as taken."""
        quick = look.took_s <= self.options.slow_look_s
        if not quick:
            self.settled_s = look.at_s + self.options.settle_s
        self.slow_looks += due and not quick
        waited = self.slow_looks > (1 if quick else 2) * SLOW_LOOKS
        fit = look.at_s >= self.settled_s or waited
        if due and fit:
            self.slow_looks = 0
        return fit


def _look(engine: MetricsSource, clock: Clock) -> _Look:
    asked_s = clock.now_s()
    counts = parse_counters(engine.metrics_text())
    at_s = clock.now_s()
    return _Look(counts, at_s, at_s - asked_s)


def wait_until_idle(engine: MetricsSource, clock: Clock, timeout_s: float = 30.0) -> Counters:
    """Wait until no request runs, so that a load starts on an empty engine; the counters then.

    A load that was cancelled is still in the engine for a few steps. After `timeout_s` it
    returns all the same: what still runs then will show in the windows.
    """
    deadline_s = clock.now_s() + timeout_s
    while True:
        counters = parse_counters(engine.metrics_text())
        if not counters.running or clock.now_s() > deadline_s:
            return counters
        clock.sleep_s(0.05)


def _refuse_stopped(load: Load, late: bool, what: str) -> None:
    if load.done.is_set() or late:
        found = "the load ended" if load.done.is_set() else f"no new {what} for too long"
        raise LoadEndedError(found, load.counts)


def plugin_engine(run: PolicyRun) -> DrivenEngine:
    """The run's engine, which must have the plugin."""
    return cast(DrivenEngine, run.engine)
