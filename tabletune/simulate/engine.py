"""A simulated vLLM engine: continuous batching with speculative decoding, step by step.

    engine = Engine(cost, [acceptance], workload, TablePolicy(lengths), EngineSettings(), rng)
    result = engine.run(until_s=60.0)

What is modelled, and where vLLM does it (0.32, v1/core/sched):
- running requests first, then waiting ones in order of arrival, up to `max_num_seqs` and
  `max_num_batched_tokens`; prompts in chunks, in the same steps as decodes (scheduler.py);
- the draft length follows the number of requests scheduled, prefills included; the guesses are
  drafted in that step and verified in the next, with asynchronous scheduling and without;
- asynchronous scheduling (async_scheduler.py): step t+1 is scheduled when step t starts. It
  knows neither what arrived since nor what step t will yield, so that a request which ends in
  step t is scheduled once more, for nothing, unless it was sure to end there; its place is
  free from step t+2 on;
- preemption of the request that came last when the KV cache is full, by recomputation.

Speed: all requests of a step at once in arrays, and whole blocks of steps where neither a
request can end or arrive nor the draft length change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tabletune.core.words import FloatArray, IntArray
from tabletune.simulate.acceptance import AcceptanceModel
from tabletune.simulate.draws import StepDraws
from tabletune.simulate.errors import SimulationError
from tabletune.simulate.policy import Observation, Policy, Steps
from tabletune.simulate.result import SimulationResult
from tabletune.simulate.scheduler import EngineSettings, Scheduler
from tabletune.simulate.step_clock import StepClock
from tabletune.simulate.step_cost import StepCost
from tabletune.simulate.step_recorder import StepRecorder
from tabletune.simulate.verify import Verified, Verifier
from tabletune.simulate.workload import Workload

_MIN_BLOCK = 4  # shorter runs of steps are faster one by one


class Engine:
    """See the module. `run` may be called again with a later time to go on.

    acceptance: one model per kind of traffic, all over the same positions; their number is
    the longest draft length. rng: everything random comes from it, in separate streams for
    requests, acceptance and step times, so that two policies meet the same requests.
    """

    def __init__(
        self,
        cost: StepCost,
        acceptance: Sequence[AcceptanceModel],
        workload: Workload,
        policy: Policy,
        settings: EngineSettings,
        rng: np.random.Generator,
    ) -> None:
        self._check(cost, acceptance, workload, settings)
        self._longest = min(acceptance[0].max_draft_length, cost.max_draft_length)
        workload_rng, quality_rng, draws_rng = rng.spawn(3)
        source = workload.start(workload_rng)
        self._settings, self._policy = settings, policy
        self._scheduler = Scheduler(settings, acceptance, source, quality_rng)
        slots = self._scheduler.slots
        self._draws = StepDraws(
            settings.max_num_seqs, cost.noise, slots.propose is not None, draws_rng
        )
        self._verifier = Verifier(slots, self._draws)
        self._clock = StepClock(cost)
        self._recorder = StepRecorder()
        self._switches = list(source.in_flight_switches)
        self._now_s = 0.0
        self._last_start_s = 0.0
        self._drafted_length = 0  # in the last step: what the next one verifies
        self._observation = Observation()
        self._unseen: Steps | None = None  # finished, but the policy has not seen it yet
        self._needs_counts = policy.wants_steps or cost.by_drafted

    @staticmethod
    def _check(
        cost: StepCost,
        acceptance: Sequence[AcceptanceModel],
        workload: Workload,
        settings: EngineSettings,
    ) -> None:
        sizes = {model.max_draft_length for model in acceptance}
        if len(sizes) != 1:
            raise SimulationError(
                "acceptance", "models over the same positions", sorted(sizes), "pad with zeros"
            )
        kinds = {t.kind for t in workload.traffic}
        if not kinds <= set(range(len(acceptance))):
            raise SimulationError(
                "traffic kinds", f"below {len(acceptance)}", sorted(kinds), "add models"
            )
        widest = settings.max_num_seqs * (max(sizes) + 1)
        if widest > settings.max_num_batched_tokens:
            raise SimulationError(
                "max_num_batched_tokens",
                f"at least {widest}: every request with its guesses",
                settings.max_num_batched_tokens,
                "steps that leave out decodes are not simulated",
            )
        if cost.max_batch_size < settings.max_num_seqs:
            raise SimulationError(
                "step_time_s",
                f"step times up to max_num_seqs {settings.max_num_seqs}",
                cost.max_batch_size,
                "build the step times for as many",
            )

    def run(self, until_s: float) -> SimulationResult:
        """Run until simulated time `until_s` (the last step may end later)."""
        scheduler = self._scheduler
        while self._now_s < until_s:
            if self._switches and self._switches[0][0] <= self._now_s:
                scheduler.switch(self._switches.pop(0)[1])
            known_s = self._last_start_s if self._settings.async_scheduling else self._now_s
            scheduler.schedule(known_s, self._drafted_length)
            if scheduler.batch_size == 0:
                self._wait(until_s)
                continue
            length = self._choose(known_s)
            limit_s = min(until_s, self._switches[0][0]) if self._switches else until_s
            steps = self._block_length(length)
            if steps >= _MIN_BLOCK:
                self._run_block(length, steps, limit_s)
            else:
                self._run_step(length)
        log = scheduler.book.log(scheduler.given())
        return SimulationResult(until_s, self._recorder.log(), log)

    def _wait(self, until_s: float) -> None:
        """Nothing can be scheduled: first let the last step's end be known, then wait."""
        if self._last_start_s < self._now_s:
            self._last_start_s = self._now_s
        else:
            self._now_s = self._last_start_s = min(self._scheduler.source.next_s, until_s)

    def _choose(self, known_s: float) -> int:
        scheduler, observation = self._scheduler, self._observation
        if not self._settings.async_scheduling:
            self._show()
        observation.now_s = known_s
        observation.prefill_requests = scheduler.prefill_requests
        observation.waiting_requests = len(scheduler.waiting)
        observation.context_tok = scheduler.context_tok
        length = self._policy.draft_length(scheduler.batch_size, observation)
        if not 0 <= length <= self._longest:
            raise SimulationError(
                "draft length",
                f"0 to {self._longest}, as the acceptance and the step times have",
                length,
                f"the policy chose it at batch size {scheduler.batch_size}",
            )
        if self._settings.async_scheduling:
            self._show()
        return length

    def _show(self) -> None:
        if self._unseen is not None:
            self._policy.observe(self._unseen)
            self._unseen = None

    def _block_length(self, length: int) -> int:
        """Steps that surely run alike from here on, but for arrivals and the time limit."""
        scheduler = self._scheduler
        if not self._settings.block_steps or length != self._drafted_length:
            return 1
        least = scheduler.slots.remaining
        steps = (int(least[least.argmin()]) - 1) // (length + 1)
        if steps < _MIN_BLOCK or not scheduler.quiet:
            return 1
        steps = min(steps, self._draws.rows_left, self._policy.steady_steps(self._observation))
        capacity = self._settings.kv_capacity_tok
        if capacity is not None:
            room = capacity - scheduler.context_tok
            steps = min(steps, room // (scheduler.slots.live * (length + 1)))
        return steps

    def _run_step(self, length: int) -> None:
        scheduler, draws, slots = self._scheduler, self._draws, self._scheduler.slots
        verified, start_s = self._drafted_length, self._now_s
        emitted, tokens = self._verifier.step(verified)
        live, context_tok = slots.live, scheduler.context_tok
        found = self._verifier.step_counts(verified) if self._needs_counts else None
        step_time_s = draws.noise_list[draws.row] * self._clock.one(
            scheduler, verified, int(found[0].sum()) if found else 0
        )
        end_s = start_s + step_time_s
        remaining = slots.remaining
        np.subtract(remaining, emitted, out=remaining)
        if remaining[remaining.argmin()] <= 0:
            tokens -= scheduler.complete_decodes(emitted, end_s)
        scheduler.context_tok += tokens
        if scheduler.completing:
            tokens += scheduler.complete_prefills(end_s)
        draws.advance(1)
        shape = (
            scheduler.batch_size,
            scheduler.decode_requests,
            length,
            verified,
            scheduler.prefill_tok,
            len(scheduler.waiting),
        )
        self._recorder.one(start_s, step_time_s, tokens, shape)
        if found and self._policy.wants_steps:
            self._unseen = Steps(
                start_s,
                np.array([step_time_s]),
                np.array([tokens]),
                scheduler.batch_size,
                live,
                scheduler.prefill_requests,
                scheduler.prefill_tok,
                context_tok,
                length,
                verified,
                *found,
            )
        self._finish(length, start_s, end_s, 1)

    def _finish(self, length: int, last_start_s: float, end_s: float, steps: int) -> None:
        self._last_start_s, self._now_s = last_start_s, end_s
        self._drafted_length = length
        self._observation.step += steps
        self._observation.last_draft_length = length

    def _run_block(self, length: int, most: int, limit_s: float) -> None:
        scheduler, draws, slots = self._scheduler, self._draws, self._scheduler.slots
        verified = self._verifier.block(length, most)
        starts, times, tokens = self._times(verified, length, most)
        steps = self._before_arrival(starts, limit_s)
        if steps < most:
            verified = self._verifier.block(length, steps)
        end_s = float(starts[steps])
        slots.remaining -= verified.emitted
        shape = (
            scheduler.batch_size,
            scheduler.decode_requests,
            length,
            length,
            0,
            len(scheduler.waiting),
        )
        self._recorder.many(
            starts[:steps].tolist(), times[:steps].tolist(), tokens[:steps].tolist(), shape
        )
        if self._policy.wants_steps:
            self._show_block(verified, starts, times[:steps], tokens[:steps], length)
        scheduler.context_tok += int(tokens[:steps].sum())
        draws.advance(steps)
        self._finish(length, float(starts[steps - 1]), end_s, steps)

    def _times(
        self, verified: Verified, length: int, steps: int
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """(starts float64[n+1] with the end of the last, step times, tokens)."""
        scheduler, draws = self._scheduler, self._draws
        live = scheduler.slots.live
        tokens = live + np.count_nonzero(verified.accepted, axis=(1, 2))
        drafted = None
        if verified.proposed is not None:
            drafted = np.count_nonzero(verified.proposed, axis=(1, 2))
        times = self._clock.block(scheduler, length, tokens, drafted)
        times = times * draws.noise[draws.row : draws.row + steps]
        starts = np.add.accumulate(np.concatenate(([self._now_s], times)))
        return starts, times, tokens

    def _before_arrival(self, starts: FloatArray, limit_s: float) -> int:
        """How many of the steps are scheduled before the next arrival and start in time."""
        begins = starts[:-1]
        arrivals = int(np.searchsorted(begins, self._scheduler.source.next_s))
        if self._settings.async_scheduling:
            arrivals += 1  # each is scheduled when the one before starts
        return max(1, min(arrivals, int(np.searchsorted(begins, limit_s)), begins.size))

    def _show_block(
        self,
        verified: Verified,
        starts: FloatArray,
        times: FloatArray,
        tokens: IntArray,
        length: int,
    ) -> None:
        """Show all steps but the last: with asynchronous scheduling that one is shown late."""
        scheduler = self._scheduler
        live, context_tok = scheduler.slots.live, scheduler.context_tok
        for part in (slice(0, len(times) - 1), slice(len(times) - 1, len(times))):
            count = part.stop - part.start
            if count == 0:
                continue
            accepted = np.count_nonzero(verified.accepted[part], axis=(0, 2))
            drafted = np.full(length, live * count)
            if verified.proposed is not None:
                drafted = np.count_nonzero(verified.proposed[part], axis=(0, 2))
            self._show()
            self._unseen = Steps(
                float(starts[part.start]),
                times[part],
                tokens[part],
                scheduler.batch_size,
                live,
                0,
                0,
                context_tok,
                length,
                length,
                drafted,
                accepted,
            )
            context_tok += int(tokens[part].sum())
