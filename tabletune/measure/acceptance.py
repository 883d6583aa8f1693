"""Measures the acceptance prior: sample prompts, once each, at the longest draft length.

The groups of prompts run one after the other, so that every recorded step belongs to one
group. Steps are read while they run; only those whose verified drafts were made at the
pinned length are counted (source: paper §4.2, one run at the longest K).
"""

import contextlib
from collections.abc import Callable, Sequence

import numpy as np

from tabletune.measure.api import EngineApiError
from tabletune.measure.clock import Clock
from tabletune.measure.driven import DrivenEngine, Load, OpenLoad, open_closed_loop
from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Progress
from tabletune.measure.prompts import Prompt, PromptSet
from tabletune.measure.steps import StepBatch, StepReader
from tabletune.records.acceptance import AcceptancePrior, PositionCounts

#: Fewer drafts than this leave S_1 uncertain by more than about ±0.06.
ENOUGH_DRAFTS = 300
READ_EVERY_S = 0.25

Render = Callable[[Sequence[Prompt]], list[LoadRequest]]


class AcceptanceError(RuntimeError):
    """Acceptance could not be measured. Attributes: `found`, `advice`."""

    def __init__(self, found: str, advice: str) -> None:
        self.found, self.advice = found, advice
        super().__init__(f"expected drafts to be verified on the sample prompts, {found}; {advice}")


class CountSums:
    """Sums of per-position counts, int64[K] each."""

    def __init__(self, draft_length: int) -> None:
        self.drafted = np.zeros(draft_length, dtype=np.int64)
        self.accepted = np.zeros(draft_length, dtype=np.int64)
        self.request_steps = 0

    def add(self, steps: StepBatch) -> None:
        """Add the counts of these steps."""
        width = len(self.drafted)
        self.drafted += steps.drafted_through[:, :width].sum(axis=0)
        self.accepted += steps.accepted_through[:, :width].sum(axis=0)
        self.request_steps += int(steps.request_steps.sum())

    def record(self) -> PositionCounts:
        """The sums as a part of a record."""
        return PositionCounts(
            drafted_through=tuple(self.drafted.tolist()),
            accepted_through=tuple(self.accepted.tolist()),
            request_steps=self.request_steps,
        )


class _Collector:
    """Sorts the steps of a run into sums: all, by batch size, and how many did not count."""

    def __init__(self, draft_length: int) -> None:
        self.draft_length = draft_length
        self.total = CountSums(draft_length)
        self.by_batch_size: dict[int, CountSums] = {}
        self.lost = 0
        self.other_length = 0

    def add(self, steps: StepBatch, group: CountSums) -> None:
        self.lost += steps.lost
        counted = (steps.verified_length == self.draft_length) & (steps.request_steps > 0)
        strange = (steps.verified_length >= 0) & (steps.verified_length != self.draft_length)
        self.other_length += int(np.count_nonzero(strange & (steps.request_steps > 0)))
        steps = steps.select(counted)
        group.add(steps)
        self.total.add(steps)
        for batch_size in np.unique(steps.batch_size).tolist():
            sums = self.by_batch_size.setdefault(batch_size, CountSums(self.draft_length))
            sums.add(steps.select(steps.batch_size == batch_size))


def measure_acceptance(
    engine: DrivenEngine,
    model: str,
    prompts: PromptSet,
    draft_length: int,
    concurrency: int,
    *,
    render: Render,
    fingerprint: str,
    progress: Progress,
    clock: Clock,
    synthetic: bool = False,
    open_load: OpenLoad = open_closed_loop,
) -> AcceptancePrior:
    """Send every prompt once at the longest draft length and count what was accepted.

    Args:
        draft_length: the longest length of the plan, pinned meanwhile.
        concurrency: open requests.
        render: prompts to requests, such as `render.Renderer`; decides `max_tokens`.
        synthetic: the engine accepts at given rates (``rejection_sample_method``).

    Raises:
        AcceptanceError: all requests failed, or no draft was verified at all.
    """
    begun_s = clock.now_s()
    collector = _Collector(draft_length)
    by_group: dict[str, CountSums] = {}
    done = failed = 0
    last_error = ""
    progress.start("acceptance", len(prompts.prompts))
    engine.pin(draft_length)
    try:
        for group in prompts.groups:
            requests = render(prompts.of_group(group))
            sums = by_group.setdefault(group, CountSums(draft_length))
            reader = StepReader(engine)
            with open_load(engine, model, requests, concurrency, once=True) as load:
                while not load.done.is_set():
                    clock.sleep_s(READ_EVERY_S)
                    _drain(reader, collector, sums)
                    note = f"{group}, draft length {draft_length}"
                    progress.advance(done + load.counts.completed, note)
            _drain(reader, collector, sums)
            done, failed = done + load.counts.completed, failed + load.counts.failed
            last_error = load.counts.last_error or last_error
            _refuse_failed(load, group)
    finally:
        with contextlib.suppress(EngineApiError):  # the engine is gone: told elsewhere
            engine.pin(None)
    if not collector.total.request_steps:
        found = f"found no step with drafts of length {draft_length}"
        if collector.other_length:
            found += f" but {collector.other_length} steps with another length"
        raise AcceptanceError(found, "check the plugin's status and that the drafter is configured")
    prior = AcceptancePrior(
        fingerprint=fingerprint,
        draft_length=draft_length,
        source="synthetic" if synthetic else "measured",
        prompt_count=done,
        prompts_hash=prompts.sha256,
        counts=collector.total.record(),
        by_group={name: sums.record() for name, sums in by_group.items()},
        by_batch_size={str(b): s.record() for b, s in sorted(collector.by_batch_size.items())},
        wall_time_s=clock.now_s() - begun_s,
        measured_at=clock.utc(),
    )
    if failed:
        progress.say(f"{failed} requests failed, the last with: {last_error}")
    if collector.lost:
        progress.say(f"{collector.lost} engine steps were overwritten before they were read")
    for problem in acceptance_problems(prior):
        progress.say(problem)
    return prior


def _drain(reader: StepReader, collector: _Collector, group: CountSums) -> None:
    while len(steps := reader.read_new()):
        collector.add(steps, group)


def _refuse_failed(load: Load, group: str) -> None:
    if not load.counts.completed:
        found = f"found all {load.counts.failed} requests of group {group!r} failing"
        raise AcceptanceError(found, f"the last error was: {load.counts.last_error}")


def acceptance_problems(prior: AcceptancePrior) -> list[str]:
    """What a reader of this prior must know, in words; empty where all is well."""
    counts, problems = prior.counts, list[str]()
    drafted = counts.drafted_through[0]
    if drafted < ENOUGH_DRAFTS:
        problems.append(
            f"only {drafted} drafts were verified ({ENOUGH_DRAFTS} are wanted): survival is "
            "uncertain; use more prompts or more tokens each"
        )
    if drafted and counts.accepted_through[0] == 0:
        problems.append(
            f"not one of {drafted} first guesses was accepted: the drafter does not fit the "
            "model, or its weights are dummies; a table from this switches speculation off"
        )
    elif drafted and counts.accepted_through[-1] == counts.drafted_through[-1] == drafted:
        problems.append(
            f"all guesses of {drafted} drafts were accepted, which real text never does"
        )
    for group, part in prior.by_group.items():
        if part.drafted_through[0] == 0 and part.request_steps:
            problems.append(f"the drafter proposed nothing for the group {group!r}")
    return problems
