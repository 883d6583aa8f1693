"""Bounded probing of lengths that the table does not use.

Two reasons to probe a length K':
- value: at the live batch sizes it may be better than what is in force. The expected
  improvement, over the time that the knowledge is of use, must exceed what the probe loses.
- blindness: positions that nothing drafts any more tell nothing about a change of traffic.
  From time to time, if a good drafter would pay there, a short probe looks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tabletune.core.controller.account import ExplorationAccount
from tabletune.core.controller.live_batches import LiveBatches
from tabletune.core.controller.outlook import Outlook
from tabletune.core.controller.plane import Plane
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.controller.survival import LiveSurvival
from tabletune.core.words import FloatArray

_GOOD_CHANCE = 0.95  # conditional acceptance of the good drafter that blindness thinks of
_LEAST_LOSS = 0.01  # a probe step is thought to lose at least this share: switching is not free
_REQUEST_STEPS = 48  # request-steps wanted of a probe, for survival
_LONGEST_S = 0.4  # of all probes of one exploration
_TIRING = 1.5  # factor on the price of a length per probe that was made lately
_REST_HALF_LIFE_S = 20.0


@dataclass(frozen=True)
class Exploration:
    """probe: (draft length, steps). cost_s: seconds of throughput thought to be lost.
    value: best expected improvement among them, a share. why: in words."""

    probe: tuple[tuple[int, int], ...]
    cost_s: float
    value: float
    why: str


@dataclass(frozen=True)
class _Option:
    column: int
    steps: int
    cost_s: float
    worth_s: float
    value: float


class Explorer:
    """Chooses probes and pays for them."""

    def __init__(
        self,
        settings: ControllerSettings,
        rng: np.random.Generator,
        forbidden: frozenset[frozenset[int]],
    ) -> None:
        self._settings, self._rng, self._forbidden = settings, rng, forbidden
        self.account = ExplorationAccount(settings.explore_rate, settings.explore_burst_s)
        self._tired: dict[int, float] = {}
        self._running: list[tuple[int, int, int, float]] = []  # column, batch size, steps, paid
        self._blind_at_s = 0.0

    def refresh(self) -> None:
        """After a promotion or a change of traffic every length is worth a look again."""
        self._tired = {}

    def settle(self, plane: Plane, outlook: Outlook, elapsed_s: float, busy_s: float) -> None:
        """Charge what the last probes turned out to cost beyond what was thought, and fill."""
        self.account.fill(busy_s)
        for column, b, steps, paid_s in self._running:
            cost_s = _cost_s(outlook, column, b, steps)
            if cost_s > paid_s:
                self.account.pay(cost_s - paid_s)
        self._running = []
        rest = 0.5 ** (elapsed_s / _REST_HALF_LIFE_S)
        self._tired = {k: t * rest for k, t in self._tired.items() if t * rest > 0.05}

    def propose(
        self,
        plane: Plane,
        outlook: Outlook,
        survival: LiveSurvival,
        live: LiveBatches,
        now_s: float,
    ) -> Exploration | None:
        """The probes worth their price now, paid for; None if there are none."""
        b = live.last_batch_size
        if b < 1 or outlook.columns[b - 1] < 0:
            return None
        blind = self._blind(plane, outlook, survival, live, now_s)
        if blind is not None:
            return self._paid([blind], b, plane, "no draft tells whether traffic has changed")
        options = self._valuable(plane, outlook, live, b)
        chosen = self._affordable(options, outlook, plane, b)
        if not chosen:
            return None
        return self._paid(chosen, b, plane, "they may be better than what is in force")

    def _paid(self, chosen: list[_Option], b: int, plane: Plane, why: str) -> Exploration:
        for option in chosen:
            self.account.pay(option.cost_s)
            self._running.append((option.column, b, option.steps, option.cost_s))
            self._tired[option.column] = self._tired.get(option.column, 0.0) + 1.0
        lengths = plane.lengths
        return Exploration(
            tuple((lengths[o.column], o.steps) for o in chosen),
            sum(o.cost_s for o in chosen),
            max(o.value for o in chosen),
            why,
        )

    def _valuable(self, plane: Plane, outlook: Outlook, live: LiveBatches, b: int) -> list[_Option]:
        settings = self._settings
        improvement = expected_improvement(outlook.gain(), outlook.contrast_sd)
        improvement[np.arange(outlook.columns.size), outlook.columns] = 0.0
        shares = live.shares()
        values = shares @ np.where(np.isfinite(improvement), improvement, 0.0)
        steps = self._steps(live, b)
        options: list[_Option] = []
        for column in np.flatnonzero(values > settings.least_value).tolist():
            if not self._possible(plane, outlook, column, b):
                continue
            if float(outlook.gain()[b - 1, column]) < np.log(1.0 - settings.skip_share):
                continue
            cost_s = _cost_s(outlook, column, b, steps)
            worth_s = float(values[column]) * settings.explore_horizon_s
            if worth_s > cost_s * _TIRING ** self._tired.get(column, 0.0):
                options.append(_Option(column, steps, cost_s, worth_s, float(values[column])))
        return sorted(options, key=lambda o: o.cost_s / o.worth_s)

    def _affordable(
        self, options: list[_Option], outlook: Outlook, plane: Plane, b: int
    ) -> list[_Option]:
        chosen: list[_Option] = []
        seconds = cost_s = 0.0
        before = plane.lengths[int(outlook.columns[b - 1])]
        for option in options:
            length = plane.lengths[option.column]
            lasts_s = option.steps * float(np.exp(outlook.log_time[b - 1, option.column]))
            if (
                len(chosen) == self._settings.most_probes
                or (chosen and seconds + lasts_s > _LONGEST_S)
                or not self.account.can_pay(cost_s + option.cost_s)
                or frozenset((before, length)) in self._forbidden
            ):
                continue
            chosen.append(option)
            seconds, cost_s, before = seconds + lasts_s, cost_s + option.cost_s, length
        return chosen

    def _steps(self, live: LiveBatches, b: int) -> int:
        """Steps until as many steady ones as wanted have come, and request-steps enough."""
        settings = self._settings
        share = max(live.steady_share, 0.05)
        steps = 1 + max(
            int(np.ceil(settings.probe_clean_steps / share)), int(np.ceil(_REQUEST_STEPS / b))
        )
        return int(np.clip(steps, settings.least_probe_steps, settings.most_probe_steps))

    def _possible(self, plane: Plane, outlook: Outlook, column: int, b: int) -> bool:
        """Usable at b, another length than in force, and no forbidden switch there and back."""
        own = int(outlook.columns[b - 1])
        pair = frozenset((plane.lengths[own], plane.lengths[column]))
        return (
            column != own
            and bool(np.isfinite(outlook.log_goodput[b - 1, column]))
            and pair not in self._forbidden
        )

    def _blind(
        self,
        plane: Plane,
        outlook: Outlook,
        survival: LiveSurvival,
        live: LiveBatches,
        now_s: float,
    ) -> _Option | None:
        settings, b = self._settings, live.last_batch_size
        off = survival.unseen_s[0] >= settings.blind_off_s
        tail = survival.unseen_s >= settings.blind_tail_s
        if now_s < self._blind_at_s or not (off or tail.any()):
            return None
        # Where nothing is drafted the shortest probe that shows a good drafter is enough.
        gains = survival.gains
        seen = gains.size if not (off or tail.any()) else (0 if off else int(np.argmax(tail)))
        level = float(gains[seen - 1]) if seen else 1.0
        hopeful = gains.copy()
        hopeful[seen:] = level * _GOOD_CHANCE ** np.arange(1, gains.size - seen + 1)
        tokens = 1.0 + np.concatenate(([0.0], np.cumsum(hopeful)))
        steps = self._steps(live, b)
        for column, length in enumerate(plane.lengths):
            if length <= seen or not self._possible(plane, outlook, column, b):
                continue
            gain = np.log(tokens[length]) - outlook.log_time[b - 1, column] - outlook.current[b - 1]
            cost_s = _cost_s(outlook, column, b, steps)
            if gain > settings.blind_gain and self.account.can_pay(cost_s):
                # Not in step with the other engines of a fleet.
                wait_s = settings.blind_off_s if off else settings.blind_tail_s
                self._blind_at_s = now_s + wait_s * float(self._rng.uniform(0.8, 1.0))
                return _Option(column, steps, cost_s, cost_s, float(gain))
        return None


def expected_improvement(gain: FloatArray, sd: FloatArray) -> FloatArray:
    """E[max(gain, 0)] of a normal gain, float64 of any shape (Mockus 1975)."""
    safe = np.maximum(sd, 1e-12)
    u = np.clip(np.where(np.isfinite(gain), gain, -1e3) / safe, -30.0, 30.0)
    # Within 0.0003 of the normal distribution; numpy has no erf.
    below = 0.5 * (1.0 + np.tanh(0.7978845608 * (u + 0.044715 * u**3)))
    density = np.exp(-0.5 * u * u) / 2.5066282746
    return np.maximum(safe * (density + u * below), 0.0)


def _cost_s(outlook: Outlook, column: int, b: int, steps: int) -> float:
    """Seconds of throughput lost by `steps` steps of the column's length at batch size b."""
    gain = float(outlook.log_goodput[b - 1, column] - outlook.current[b - 1])
    loss = 1.0 if not np.isfinite(gain) else max(1.0 - float(np.exp(gain)), _LEAST_LOSS)
    return steps * float(np.exp(outlook.log_time[b - 1, column])) * loss
