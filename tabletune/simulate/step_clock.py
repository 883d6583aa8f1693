"""The step time of what was scheduled, before noise."""

from __future__ import annotations

import numpy as np

from tabletune.core.words import FloatArray, IntArray
from tabletune.simulate.errors import SimulationError
from tabletune.simulate.scheduler import Scheduler
from tabletune.simulate.step_cost import StepCost


class StepClock:
    """Looks up and adds the parts of `StepCost`."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._rows: list[list[float]] = cost.step_time_s.tolist()

    def one(self, scheduler: Scheduler, verified_length: int, drafted: int) -> float:
        """Seconds of the step that is scheduled. drafted: guesses proposed in all."""
        cost, decodes = self._cost, scheduler.decode_requests
        if decodes == 0:
            seconds = self._cell(1, 0)
        elif cost.by_drafted and verified_length:
            mean = drafted / scheduler.slots.live if scheduler.slots.live else 0.0
            seconds = float(self._between(decodes, np.array([mean]))[0])
        else:
            seconds = self._cell(decodes, verified_length)
        if scheduler.prefill_tok:
            seconds += cost.prefill_step_s + cost.prefill_s_per_tok * scheduler.prefill_tok
        if cost.context_s_per_tok:
            profiled = decodes * cost.profiled_context_tok
            seconds += cost.context_s_per_tok * (scheduler.context_tok - profiled)
        return seconds

    def block(
        self,
        scheduler: Scheduler,
        verified_length: int,
        tokens: IntArray,
        drafted: IntArray | None,
    ) -> FloatArray:
        """The same for steps without prompts in which `tokens` are given out and `drafted`
        guesses proposed (None: all), int64[n] each: float64[n]."""
        cost, decodes = self._cost, scheduler.decode_requests
        if cost.by_drafted and verified_length and drafted is not None:
            seconds = self._between(decodes, drafted / scheduler.slots.live)
        else:
            seconds = np.full(tokens.size, self._cell(decodes, verified_length))
        if cost.context_s_per_tok:
            context_tok = scheduler.context_tok + np.cumsum(tokens) - tokens
            profiled = decodes * cost.profiled_context_tok
            seconds += cost.context_s_per_tok * (context_tok - profiled)
        return seconds

    def _cell(self, batch_size: int, draft_length: int) -> float:
        seconds = self._rows[batch_size][draft_length]
        if seconds != seconds:  # noqa: PLR0124 (NaN; math.isnan costs a call in every step)
            raise SimulationError(
                "step time",
                "a known cell",
                (batch_size, draft_length),
                "measure it, keep the policy away from it, or give `uncovered_factor`",
            )
        return seconds

    def _between(self, batch_size: int, mean_length: FloatArray) -> FloatArray:
        low = np.floor(mean_length).astype(np.int64)
        high = np.ceil(mean_length).astype(np.int64)
        cells = np.array(
            [self._cell(batch_size, k) for k in range(int(low.min()), int(high.max()) + 1)]
        )
        first = int(low.min())
        share = mean_length - low
        mixed = cells[low - first] * (1 - share) + cells[high - first] * share
        return mixed.astype(np.float64)
