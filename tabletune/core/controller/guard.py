"""The watchdog: stalls and a collapse of throughput after a swap.

First fall: back to the promoted table. A further one while that is in force: the boot table.
Each fall starts a quarantine, in which nothing is swapped or probed, longer each time; lengths
that the failed table had brought in stay out for twice as long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from tabletune.core.controller.in_force import ExpectedStepTime
from tabletune.core.controller.observation import LiveObservation, Stall
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.words import Cell, FloatArray

_LEAST_STEPS_S = 0.2  # decode seconds at shared batch sizes before a collapse is judged
_REFERENCE_HALF_LIFE_S = 10.0
_USUAL_LOSS_HALF_LIFE_S = 60.0  # stalls of a busy host come in bursts; several swaps apart


class Guard:
    """Feed with `update`; `fell` says why the table in force must go."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._rates: dict[int, list[float]] = {}  # batch size -> decode seconds, tokens, fading
        self._reference: dict[int, float] = {}  # tokens per second before the swap
        self._after: dict[int, list[float]] = {}
        self._watch_until_s = -1.0
        self._low_ticks = 0
        # Per tick: when, busy seconds, (draft length, seconds lost) of each stalled step.
        self._lost: deque[tuple[float, float, list[tuple[int, float]]]] = deque()
        self._usual: list[float] = [0.0, 0.0]  # busy seconds and those lost in stalls, fading
        self._usual_before = [0.0, 0.0]  # as they were when the table in force was swapped in
        self._usual_loss = 0.0  # and their share then
        self._excluded: dict[int, float] = {}
        self.falls = 0
        self.quarantine_until_s = -1.0

    def swapped(self, now_s: float, log_ratio: FloatArray) -> None:
        """Another table came into force: compare with what was before.

        log_ratio: float64[B], log of the goodput that is predicted of it over that of the
        table before, by batch size; where it is NaN nothing is compared. A worse table (a
        fall back) is not expected to reach what was before; a better one must.
        """
        share = np.exp(np.minimum(log_ratio, 0.0))
        self._reference = {
            b: tok / s * float(share[b - 1])
            for b, (s, tok) in self._rates.items()
            if s > 0 and tok > 0 and b <= share.size and np.isfinite(share[b - 1])
        }
        self._usual_before = [*self._usual]
        busy_s, lost_s = self._usual
        self._usual_loss = lost_s / busy_s if busy_s > 0 else 0.0
        self._after, self._low_ticks = {}, 0
        self._lost.clear()
        self._watch_until_s = now_s + self._settings.watch_s

    def traffic_changed(self) -> None:
        """What was before says nothing any more about what is to be expected."""
        self._rates, self._reference, self._after = {}, {}, {}

    def update(
        self,
        observation: LiveObservation,
        expected: ExpectedStepTime,
        elapsed_s: float,
        now_s: float,
    ) -> str | None:
        """Take one tick in; why the table in force failed, in words, or None."""
        keep = 0.5 ** (elapsed_s / _REFERENCE_HALF_LIFE_S)
        for sums in self._rates.values():
            sums[0] *= keep
            sums[1] *= keep
        watching = now_s <= self._watch_until_s
        for batch in observation.batches:
            for totals in (self._rates, self._after) if watching else (self._rates,):
                sums = totals.setdefault(batch.batch_size, [0.0, 0.0])
                sums[0] += batch.decode_s
                sums[1] += batch.decode_tok
        self._note_stalls(observation, expected, elapsed_s, now_s)
        return (self._stalled() or self._collapsed()) if watching else None

    def _note_stalls(
        self,
        observation: LiveObservation,
        expected: ExpectedStepTime,
        elapsed_s: float,
        now_s: float,
    ) -> None:
        stalls = [
            (stall.draft_length, stall.step_time_s - (expected(*_cell(stall)) or 0.0))
            for stall in observation.stalls
        ]
        self._lost.append((now_s, observation.busy_s, stalls))
        keep = 0.5 ** (elapsed_s / _USUAL_LOSS_HALF_LIFE_S)
        now = (observation.busy_s, sum(seconds for _, seconds in stalls))
        self._usual = [keep * sums + new for sums, new in zip(self._usual, now, strict=True)]
        while self._lost and self._lost[0][0] < now_s - self._settings.watch_s:
            self._lost.popleft()

    def _lost_share(self) -> float:
        """Share of the time lost in stalls, lately or since the swap."""
        busy_s = sum(busy for _, busy, _ in self._lost)
        lost_s = sum(seconds for *_, stalls in self._lost for _, seconds in stalls)
        return lost_s / busy_s if busy_s > 0 else 0.0

    def _stalled(self) -> str | None:
        """Stalls happen on a busy host; only many more than before are the table's fault."""
        settings, share = self._settings, self._lost_share()
        count = sum(len(stalls) for *_, stalls in self._lost)
        bearable = settings.stalled_share + 3 * self._usual_loss
        if count < settings.most_stalls or share <= bearable:
            return None
        return f"{count} stalled steps took {share:.0%} of the time since the swap"

    def _collapsed(self) -> str | None:
        shared = [(b, *sums) for b, sums in self._after.items() if b in self._reference]
        seconds = sum(s for _, s, _ in shared)
        if seconds < _LEAST_STEPS_S:
            return None
        expected = sum(self._reference[b] * s for b, s, _ in shared)
        share = sum(tok for _, _, tok in shared) / expected
        self._after = {}
        self._low_ticks = self._low_ticks + 1 if share < self._settings.collapse_share else 0
        if self._low_ticks < self._settings.collapse_ticks:
            return None
        return f"throughput fell to {share:.0%} of that before the swap at the same batch sizes"

    def stalled_length(self) -> int | None:
        """The length at which most time is lost in stalls, if that is more than is borne."""
        lost: dict[int, list[float]] = {}
        for *_, stalls in self._lost:
            for length, seconds in stalls:
                lost.setdefault(length, []).append(seconds)
        worst = max(lost, key=lambda k: (sum(lost[k]), -k), default=None)
        busy_s = sum(busy for _, busy, _ in self._lost)
        if worst is None or len(lost[worst]) < self._settings.most_stalls or busy_s <= 0:
            return None
        return worst if sum(lost[worst]) / busy_s > self._settings.stalled_share else None

    def fall(self, now_s: float, new_lengths: frozenset[int]) -> float:
        """Start the next quarantine; how many seconds it lasts. new_lengths: stay out longer."""
        settings = self._settings
        self.falls += 1
        self._usual = [*self._usual_before]  # what the failed table lost is not usual
        wait_s = min(
            settings.quarantine_s * settings.quarantine_growth ** (self.falls - 1),
            settings.longest_quarantine_s,
        )
        self.quarantine_until_s = now_s + wait_s
        self.exclude(new_lengths, now_s, 2 * wait_s)
        return wait_s

    def exclude(self, lengths: frozenset[int], now_s: float, wait_s: float) -> None:
        """Keep lengths out of tables and probes for a while."""
        for length in lengths:
            self._excluded[length] = max(self._excluded.get(length, 0.0), now_s + wait_s)
        self._lost = deque(
            (at_s, busy_s, [stall for stall in stalls if stall[0] not in lengths])
            for at_s, busy_s, stalls in self._lost
        )

    def excluded(self, now_s: float) -> frozenset[int]:
        """The lengths kept out now."""
        self._excluded = {k: until for k, until in self._excluded.items() if until > now_s}
        return frozenset(self._excluded)

    def in_quarantine(self, now_s: float) -> bool:
        return now_s < self.quarantine_until_s

    def state(self, now_s: float) -> Mapping[str, object]:
        """Plain values for a status page."""
        return {
            "falls": self.falls,
            "quarantine_s": round(max(0.0, self.quarantine_until_s - now_s), 3),
            "excluded_lengths": sorted(self.excluded(now_s)),
        }


def _cell(stall: Stall) -> Cell:
    return stall.batch_size, stall.draft_length
