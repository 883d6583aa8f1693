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

from tabletune.simulate.acceptance import AcceptanceModel
from tabletune.simulate.draws import StepDraws
from tabletune.simulate.errors import SimulationError
from tabletune.simulate.policy import Observation, Policy
from tabletune.simulate.result import SimulationResult
from tabletune.simulate.scheduler import Scheduler
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import StepCost
from tabletune.simulate.step_recorder import StepRecorder
from tabletune.simulate.step_runner import StepRunner
from tabletune.simulate.timeline import Audience, Timeline
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
        self._timeline = Timeline()
        self._audience = Audience(policy)
        self._recorder = StepRecorder()
        self._runner = StepRunner(
            self._scheduler, self._draws, cost, self._timeline, self._audience, self._recorder
        )
        self._switches = list(source.in_flight_switches)
        self._observation = Observation()

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
        scheduler, timeline = self._scheduler, self._timeline
        asynchronous = self._settings.async_scheduling
        while timeline.now_s < until_s:
            if self._switches and self._switches[0][0] <= timeline.now_s:
                scheduler.switch(self._switches.pop(0)[1])
            known_s = timeline.last_start_s if asynchronous else timeline.now_s
            scheduler.schedule(known_s, timeline.drafted_length)
            if scheduler.batch_size == 0:
                self._wait(until_s)
                continue
            if not asynchronous:
                self._audience.show()
            length = self._choose(known_s)
            steps = self._block_length(length)
            if asynchronous:
                self._audience.show()
            limit_s = min(until_s, self._switches[0][0]) if self._switches else until_s
            if steps >= _MIN_BLOCK:
                self._runner.block(length, steps, limit_s)
            else:
                self._runner.one(length)
        log = scheduler.book.log(scheduler.given())
        return SimulationResult(until_s, self._recorder.log(), log)

    def _wait(self, until_s: float) -> None:
        """Nothing can be scheduled: first let the last step's end be known, then wait."""
        timeline = self._timeline
        if timeline.last_start_s < timeline.now_s:
            timeline.last_start_s = timeline.now_s
        else:
            timeline.now_s = timeline.last_start_s = min(self._scheduler.source.next_s, until_s)

    def _choose(self, known_s: float) -> int:
        scheduler, observation = self._scheduler, self._observation
        observation.now_s = known_s
        observation.step = self._timeline.steps
        observation.last_draft_length = self._timeline.drafted_length
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
        return length

    def _block_length(self, length: int) -> int:
        """Steps that surely run alike from here on, but for arrivals and the time limit."""
        scheduler = self._scheduler
        if not self._settings.block_steps or length != self._timeline.drafted_length:
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
