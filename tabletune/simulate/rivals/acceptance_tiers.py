"""SGLang-style: a smoothed accepted length moves the draft length along a few tiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tabletune.simulate.errors import SimulationError
from tabletune.simulate.policy import Observation, Steps

ONE_SLOT: dict[int, tuple[int, ...]] = {1: (1, 3, 7)}
"""The tiers of `--speculative-adaptive` as first released, for all batch sizes."""

SLOTS_BY_BATCH: dict[int, tuple[int, ...]] = {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}
"""Its later defaults: tiers by smallest batch size."""


@dataclass(frozen=True)
class TierOptions:
    """Defaults as in SGLang. down_hysteresis: lowers the threshold to step down."""

    smoothing: float = 0.2
    warmup_steps: int = 10
    interval_steps: int = 5
    up_hysteresis: float = 0.0
    down_hysteresis: float = -0.25


class _Slot:
    """The state of one range of batch sizes."""

    def __init__(self, tiers: Sequence[int], start: int, options: TierOptions) -> None:
        self.tiers = sorted(set(tiers))
        self.length = start if start in self.tiers else self.tiers[len(self.tiers) // 2]
        self.accepted = float(self.length - 1)
        self.seen = 0
        self._options = options

    @property
    def steps_to_decision(self) -> int:
        """Observed steps until the length may change, at least 1."""
        over = self.seen - self._options.warmup_steps
        interval = self._options.interval_steps
        return interval - over % interval if over >= 0 else interval - over

    def observe(self, mean_accepted: float) -> None:
        if self.length > 0:
            self.accepted += self._options.smoothing * (mean_accepted - self.accepted)
        due = self.steps_to_decision == 1
        self.seen += 1
        if due:
            self.length = self._next()

    def _next(self) -> int:
        index = self.tiers.index(self.length)
        if self.length == 0:  # try again, so as to learn anything at all
            index = min(index + 1, len(self.tiers) - 1)
            if self.tiers[index] > 0 and self.accepted < 0:
                self.accepted = float(self.tiers[index] - 1)
            return self.tiers[index]
        start = index
        while index > 0:
            below = self.tiers[index - 1]
            threshold = 0.5 if below == 0 else below - 0.5
            if self.accepted > threshold + self._options.down_hysteresis:
                break
            index -= 1
        while start <= index < len(self.tiers) - 1:
            if self.accepted <= self.tiers[index] - 0.5 + self._options.up_hysteresis:
                break
            index += 1
        return self.tiers[index]


class AcceptanceTiersPolicy:
    """Per range of batch sizes an exponential mean of accepted guesses per request; every
    `interval_steps` the length steps down where the mean is at most the next lower tier minus
    a half (plus hysteresis), or up where it is above the present tier minus a half.

    slots: {smallest batch size: tiers}. longest: tiers above it become it.
    """

    wants_steps = True

    def __init__(
        self,
        slots: Mapping[int, Sequence[int]],
        longest: int,
        start: int | None = None,
        options: TierOptions | None = None,
    ) -> None:
        if not slots or any(not tiers or min(tiers) < 0 for tiers in slots.values()):
            raise SimulationError("slots", "{batch size: tiers >= 0}", dict(slots), "fill them")
        first = longest if start is None else start
        self._slots = [
            (b, _Slot([min(k, longest) for k in tiers], first, options or TierOptions()))
            for b, tiers in sorted(slots.items())
        ]

    def _slot(self, batch_size: int) -> _Slot:
        chosen = self._slots[0][1]
        for smallest, slot in self._slots:
            if smallest <= batch_size:
                chosen = slot
        return chosen

    def draft_length(self, batch_size: int, observation: Observation) -> int:
        return self._slot(batch_size).length

    def steady_steps(self, observation: Observation) -> int:
        return min(slot.steps_to_decision for _, slot in self._slots)

    def observe(self, steps: Steps) -> None:
        if not steps.decode_requests:
            return
        slot = self._slot(steps.batch_size)
        for accepted in steps.accepted_through.sum(axis=1).tolist():
            slot.observe(accepted / steps.decode_requests)
