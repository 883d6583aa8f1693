"""TensorRT-LLM-style: a hand-written schedule, and a permanent stop at poor acceptance."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tabletune.simulate.errors import SimulationError
from tabletune.simulate.policy import FOREVER, Observation, Steps


class LengthSchedulePolicy:
    """`draft_len_schedule`: upper bounds of the batch size, and 0 above the last.

    schedule: {upper bound: draft length}. max_concurrency: 0 above this batch size.
    acceptance_window, acceptance_threshold: once the mean share of accepted guesses over the
        last so many speculating steps falls below the threshold, no speculation ever again.

    >>> policy = LengthSchedulePolicy({4: 4, 8: 2, 32: 1})
    >>> [policy.draft_length(b, Observation()) for b in (4, 5, 32, 33)]
    [4, 2, 1, 0]
    """

    def __init__(
        self,
        schedule: Mapping[int, int],
        max_concurrency: int | None = None,
        acceptance_window: int = 0,
        acceptance_threshold: float = 0.0,
    ) -> None:
        if not schedule or min(schedule) < 1 or min(schedule.values()) < 0:
            raise SimulationError(
                "schedule", "{batch size >= 1: draft length >= 0}", dict(schedule), "fill it"
            )
        self._schedule = sorted(schedule.items())
        self._most = max_concurrency
        self._threshold = acceptance_threshold
        self._shares: deque[float] = deque(maxlen=acceptance_window)
        self.wants_steps = acceptance_window > 0
        self.disabled = False

    def draft_length(self, batch_size: int, observation: Observation) -> int:
        if self.disabled or (self._most is not None and batch_size > self._most):
            return 0
        return next((k for bound, k in self._schedule if batch_size <= bound), 0)

    def steady_steps(self, observation: Observation) -> int:
        if not self.wants_steps or self.disabled:
            return FOREVER
        # A full window decides after every step; a part-filled one not before it is full.
        return max(1, (self._shares.maxlen or 0) - len(self._shares))

    def observe(self, steps: Steps) -> None:
        totals = steps.drafted_through.sum(axis=1).tolist()
        hits = steps.accepted_through.sum(axis=1).tolist()
        for drafted, accepted in zip(totals, hits, strict=True):
            if not drafted:
                continue
            self._shares.append(accepted / drafted)
            full = len(self._shares) == self._shares.maxlen
            if full and sum(self._shares) / len(self._shares) < self._threshold:
                self.disabled = True
