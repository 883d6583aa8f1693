"""Runs what was scheduled: one step, or a block of equal steps."""

from __future__ import annotations

import numpy as np

from tabletune.core.words import FloatArray, IntArray
from tabletune.simulate.draws import StepDraws
from tabletune.simulate.policy import Steps
from tabletune.simulate.scheduler import Scheduler
from tabletune.simulate.step_clock import StepClock
from tabletune.simulate.step_cost import StepCost
from tabletune.simulate.step_recorder import Shape, StepRecorder
from tabletune.simulate.timeline import Audience, Timeline
from tabletune.simulate.verify import Verified, Verifier


class StepRunner:
    """Both ways use the same random numbers for the same step and give the same result."""

    def __init__(
        self,
        scheduler: Scheduler,
        draws: StepDraws,
        cost: StepCost,
        timeline: Timeline,
        audience: Audience,
        recorder: StepRecorder,
    ) -> None:
        self._scheduler, self._draws, self._timeline = scheduler, draws, timeline
        self._audience, self._recorder = audience, recorder
        self._verifier = Verifier(scheduler.slots, draws)
        self._clock = StepClock(cost)
        self._by_drafted = cost.by_drafted
        self._asynchronous = scheduler.settings.async_scheduling

    def one(self, length: int) -> None:
        """One step, in which `length` guesses are drafted."""
        scheduler, timeline, draws = self._scheduler, self._timeline, self._draws
        slots, verified, start_s = scheduler.slots, timeline.drafted_length, timeline.now_s
        live, context_tok = slots.live, scheduler.context_tok
        emitted, tokens = self._verifier.step(verified)
        drafted = self._verifier.drafted(verified) if self._by_drafted else 0
        seconds = self._clock.one(scheduler, verified, drafted) * draws.factor(verified)
        end_s = start_s + seconds
        draws.advance(1)
        remaining = slots.remaining
        np.subtract(remaining, emitted, out=remaining)
        counts = self._verifier.counts(verified) if self._audience.wants_steps else None
        if remaining[remaining.argmin()] <= 0:
            tokens -= scheduler.complete_decodes(emitted, end_s)
        scheduler.context_tok += tokens
        if scheduler.completing:
            tokens += scheduler.complete_prefills(end_s)
        self._recorder.one(start_s, seconds, tokens, self._shape(length, verified))
        timeline.advance(length, start_s, end_s, 1)
        if counts:
            times, given = np.array([seconds]), np.array([tokens])
            self._show(start_s, times, given, (live, context_tok), (length, verified), counts)

    def block(self, length: int, most: int, limit_s: float) -> None:
        """Up to `most` steps that verify and draft `length` guesses and end no request; fewer
        if a request arrives that one of them would see, or `limit_s` is reached."""
        scheduler, draws = self._scheduler, self._draws
        verified = self._verifier.block(length, most)
        starts, times, tokens = self._times(verified, length, most)
        steps = self._before_arrival(starts, limit_s)
        if steps < most:
            verified = verified.first(steps)
            times, tokens = times[:steps], tokens[:steps]
        scheduler.slots.remaining -= verified.emitted(scheduler.slots.decoding)
        self._recorder.many(
            starts[:steps].tolist(),
            times.tolist(),
            tokens.tolist(),
            self._shape(length, length),
        )
        if self._audience.wants_steps:
            self._show_block(verified, starts, times, tokens, length)
        scheduler.context_tok += int(tokens.sum())
        draws.advance(steps)
        self._timeline.advance(length, float(starts[steps - 1]), float(starts[steps]), steps)

    def _shape(self, length: int, verified: int) -> Shape:
        scheduler = self._scheduler
        return (
            scheduler.batch_size,
            scheduler.decode_requests,
            length,
            verified,
            scheduler.prefill_tok,
            len(scheduler.waiting),
        )

    def _times(
        self, verified: Verified, length: int, steps: int
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """(starts float64[n+1] with the end of the last, step times, tokens)."""
        scheduler, draws = self._scheduler, self._draws
        tokens = scheduler.slots.live + np.count_nonzero(verified.accepted, axis=(1, 2))
        drafted = None
        if verified.proposed is not None:
            drafted = np.count_nonzero(verified.proposed, axis=(1, 2))
        times = self._clock.block(scheduler, length, tokens, drafted)
        times = times * draws.factors(length, steps)
        # Added one after the other, as single steps are: the same to the last bit.
        starts = np.add.accumulate(np.concatenate(([self._timeline.now_s], times)))
        return starts, times, tokens

    def _before_arrival(self, starts: FloatArray, limit_s: float) -> int:
        """How many of the steps are scheduled before the next arrival and start in time."""
        begins = starts[:-1]
        arrivals = int(np.searchsorted(begins, self._scheduler.source.next_s))
        if self._asynchronous:
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
        """All steps but the last in one, and the last: it is seen later than the others."""
        live, context_tok = self._scheduler.slots.live, self._scheduler.context_tok
        last = len(times) - 1
        for part in (slice(0, last), slice(last, last + 1)):
            if part.stop > part.start:
                counts = verified.counts(part, live)
                self._show(
                    float(starts[part.start]),
                    times[part],
                    tokens[part],
                    (live, context_tok),
                    (length, length),
                    counts,
                )
                context_tok += int(tokens[part].sum())

    def _show(
        self,
        start_s: float,
        times: FloatArray,
        tokens: IntArray,
        before: tuple[int, int],
        lengths: tuple[int, int],
        counts: tuple[IntArray, IntArray],
    ) -> None:
        """before: (decoding requests, tokens of context) at the start. lengths: (drafted,
        verified). counts: (drafted through, accepted through)."""
        scheduler = self._scheduler
        self._audience.finished(
            Steps(
                start_s=start_s,
                step_time_s=times,
                tokens=tokens,
                batch_size=scheduler.batch_size,
                decode_requests=before[0],
                prefill_requests=scheduler.prefill_requests,
                prefill_tok=scheduler.prefill_tok,
                context_tok=before[1],
                draft_length=lengths[0],
                verified_length=lengths[1],
                drafted_through=counts[0],
                accepted_through=counts[1],
            )
        )
