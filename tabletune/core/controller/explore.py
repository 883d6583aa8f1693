"""Bounded probing of lengths that the table does not use.

Two reasons to probe a length K':
- value: what a probe tells may show that it is better than what is in force. How much that
  is expected to gain at the live batch sizes (the knowledge gradient: Frazier, Powell and
  Dayanik 2008), over the time that the knowledge is of use, must exceed what the probe loses.
- blindness: positions that nothing drafts any more tell nothing about a change of traffic.
  From time to time, if a good drafter would pay there, a short probe looks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tabletune.core.controller.account import ExplorationAccount
from tabletune.core.controller.blindness import Blindness
from tabletune.core.controller.known import Known
from tabletune.core.controller.outlook import Outlook
from tabletune.core.controller.probe_cost import probe_cost_s, probe_steps
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.words import FloatArray

_LONGEST_S = 0.4  # of all probes of one exploration
_CHEAP, _MOST_LONGER = 10.0, 4.0  # worth over price from which a probe is longer; how much
_TIRING = 1.15  # factor on the price of a length per probe that was made lately
_REST_HALF_LIFE_S = 60.0
_MOST_SIZES = 3  # batch sizes at which a probe is thought to run,
_LEAST_SHARE = 0.1  # those besides the newest with at least this share of the time
_SAME_CHANCE = 0.5  # that it runs at the batch size of the newest step


@dataclass(frozen=True)
class Exploration:
    """probe: (draft length, steps). cost_s: seconds of throughput thought to be lost.
    value: what is expected to be gained by the best of them, a share. why: in words."""

    probe: tuple[tuple[int, int], ...]
    cost_s: float
    value: float
    why: str


@dataclass(frozen=True)
class _Option:
    column: int
    steps: int
    cost_s: float
    value: float
    rank: float = 0.0  # the lower the earlier: price over value


class Explorer:
    """Chooses probes and pays for them. forbidden: pairs of lengths never to follow each other."""

    def __init__(
        self,
        settings: ControllerSettings,
        rng: np.random.Generator,
        forbidden: frozenset[frozenset[int]],
    ) -> None:
        self._settings, self._forbidden = settings, forbidden
        self.account = ExplorationAccount(settings.explore_rate, settings.explore_burst_s)
        self._blindness = Blindness(settings, rng)
        self._tired: dict[int, float] = {}
        self._running: list[tuple[_Option, int]] = []  # with the batch size it was meant for

    def refresh(self) -> None:
        """After a promotion or a change of traffic every length is worth a look again."""
        self._tired = {}

    def settle(self, outlook: Outlook, elapsed_s: float, busy_s: float) -> None:
        """Charge what the last probes turned out to cost beyond what was thought, and fill."""
        self.account.fill(busy_s)
        for option, b in self._running:
            cost_s = probe_cost_s(outlook, option.column, b, option.steps)
            if cost_s > option.cost_s:
                self.account.pay(cost_s - option.cost_s)
        self._running = []
        rest = 0.5 ** (elapsed_s / _REST_HALF_LIFE_S)
        self._tired = {k: t * rest for k, t in self._tired.items()}

    def propose(
        self, known: Known, outlook: Outlook, settling: bool, now_s: float
    ) -> Exploration | None:
        """The probes worth their price now, paid for; None if there are none."""
        b = known.live.last_batch_size
        if b < 1 or outlook.columns[b - 1] < 0 or not np.isfinite(outlook.current[b - 1]):
            return None
        possible = [c for c in range(len(known.plane.lengths)) if self._possible(known, outlook, c)]
        blind = self._blindness.probe(known, outlook, possible, self.account, now_s)
        if blind is not None:
            chosen = [_Option(*blind)]
            return self._paid(chosen, known, "no draft tells whether traffic has changed")
        options = self._valuable(known, outlook, possible, settling)
        chosen = self._affordable(options, known, outlook)
        why = "what it tells may be worth more than it costs"
        return self._paid(chosen, known, why) if chosen else None

    def _possible(self, known: Known, outlook: Outlook, column: int) -> bool:
        """Usable here, and no forbidden switch there and back."""
        b = known.live.last_batch_size
        own = int(outlook.columns[b - 1])
        lengths = known.plane.lengths
        return (
            bool(np.isfinite(outlook.log_goodput[b - 1, column]))
            and frozenset((lengths[own], lengths[column])) not in self._forbidden
        )

    def _valuable(
        self, known: Known, outlook: Outlook, possible: list[int], settling: bool
    ) -> list[_Option]:
        settings, b = self._settings, known.live.last_batch_size
        steps = probe_steps(settings, known.live, b)
        values = self._values(known, outlook, steps)
        least = settings.settling_value if settling else settings.steady_value
        options: list[_Option] = []
        for column in possible:
            value = float(values[column])
            gain = float(outlook.gain()[b - 1, column])
            if value < least or gain < np.log(1.0 - settings.skip_share):
                continue
            cost_s = probe_cost_s(outlook, column, b, steps)
            price_s = cost_s * _TIRING ** self._tired.get(column, 0.0)
            worth = value * settings.explore_horizon_s / price_s
            if worth > 1.0:
                more = self._longer(steps, worth, float(outlook.log_time[b - 1, column]))
                cost_s *= more / steps
                # By the price, tiredness included: otherwise a cheap length that is probed again
                # and again takes every turn of one that was unlucky once.
                options.append(_Option(column, more, cost_s, value, price_s / value))
        return sorted(options, key=lambda o: (o.rank, o.column))

    def _longer(self, steps: int, worth: float, log_time: float) -> int:
        """More steps where they are cheap for what they tell: of a near tie, mostly."""
        factor = float(np.clip(np.sqrt(worth / _CHEAP), 1.0, _MOST_LONGER))
        most = max(steps, int(_LONGEST_S / np.exp(log_time)))
        return min(int(steps * factor), most)

    def _values(self, known: Known, outlook: Outlook, steps: int) -> FloatArray:
        """What a probe of each length is expected to gain, float64[L]: over the batch sizes at
        which it may run: most likely that of the newest step, else one of late."""
        shares = known.live.shares()
        newest = known.live.last_batch_size - 1
        chances = np.where(shares >= _LEAST_SHARE, shares, 0.0) * (1 - _SAME_CHANCE)
        chances[newest] += _SAME_CHANCE
        values = np.zeros(len(known.plane.lengths))
        for row in np.argsort(-chances, kind="stable")[:_MOST_SIZES].tolist():
            if chances[row] > 0:
                gradient = _knowledge_gradient(known, outlook, row, steps)
                values += chances[row] * (shares[outlook.live] @ gradient)
        return values

    def _affordable(self, options: list[_Option], known: Known, outlook: Outlook) -> list[_Option]:
        b = known.live.last_batch_size
        chosen: list[_Option] = []
        seconds = cost_s = 0.0
        before = known.plane.lengths[int(outlook.columns[b - 1])]
        for wanted in options:
            length = known.plane.lengths[wanted.column]
            step_s = float(np.exp(outlook.log_time[b - 1, wanted.column]))
            left = int((_LONGEST_S - seconds) / step_s)
            option = _shortened(wanted, left) if chosen else wanted
            if (
                len(chosen) == self._settings.most_probes
                or option.steps < self._settings.least_probe_steps
                or not self.account.can_pay(cost_s + option.cost_s)
                or frozenset((before, length)) in self._forbidden
            ):
                continue
            chosen.append(option)
            seconds += option.steps * step_s
            cost_s, before = cost_s + option.cost_s, length
        return chosen

    def _paid(self, chosen: list[_Option], known: Known, why: str) -> Exploration:
        for option in chosen:
            self.account.pay(option.cost_s)
            self._running.append((option, known.live.last_batch_size))
            self._tired[option.column] = self._tired.get(option.column, 0.0) + 1.0
        lengths = known.plane.lengths
        return Exploration(
            tuple((lengths[o.column], o.steps) for o in chosen),
            sum(o.cost_s for o in chosen),
            max(o.value for o in chosen),
            why,
        )


def _shortened(option: _Option, most_steps: int) -> _Option:
    """The option with at most so many steps; none where that is less than half of what it wants."""
    if option.steps <= most_steps:
        return option
    steps = most_steps if 2 * most_steps >= option.steps else 0
    return replace(option, steps=steps, cost_s=option.cost_s * steps / option.steps)


def _knowledge_gradient(known: Known, outlook: Outlook, row: int, steps: int) -> FloatArray:
    """Expected gain, over the length in force, of choosing after a probe of each length at
    batch size row + 1, float64[R, L] at the live ones; 0 for the length in force."""
    live, clean = outlook.live, (steps - 1) * known.live.steady_share
    own, each = outlook.columns[live], np.arange(live.size)
    bears = known.residuals.contrast_covariance(row, live, own)
    here = np.maximum(bears[int(np.flatnonzero(live == row)[0])], 0.0)
    learned = bears**2 / (here + known.residuals.probe_variance(clean))[None, :]
    told = outlook.slopes @ known.survival.told_by((row + 1) * (steps - 1))
    sd = np.sqrt(learned + told[own])
    gradient = expected_improvement(outlook.gain()[live], sd)
    gradient[each, own] = 0.0
    return np.where(np.isfinite(gradient), gradient, 0.0)


def expected_improvement(gain: FloatArray, sd: FloatArray) -> FloatArray:
    """E[max(gain, 0)] - max(E[gain], 0), both of a normal gain, float64 of any shape: what
    knowing it is worth beyond choosing by its mean. Infinite or unknown gains are worth 0."""
    safe = np.maximum(sd, 1e-12)
    u = np.abs(np.where(np.isfinite(gain), gain, 1e3)) / safe
    u = np.minimum(u, 30.0)
    # Within 0.0003 of the normal distribution; numpy has no erf.
    above = 0.5 * (1.0 - np.tanh(0.7978845608 * (u + 0.044715 * u**3)))
    density = np.exp(-0.5 * u * u) / 2.5066282746
    return np.maximum(safe * (density - u * above), 0.0)
