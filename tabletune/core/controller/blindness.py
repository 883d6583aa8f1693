"""A look, from time to time, at what no draft in force tells anything about."""

from __future__ import annotations

import numpy as np

from tabletune.core.controller.account import ExplorationAccount
from tabletune.core.controller.known import Known
from tabletune.core.controller.outlook import Outlook
from tabletune.core.controller.probe_cost import probe_cost_s, probe_steps
from tabletune.core.controller.settings import ControllerSettings

_GOOD_CHANCE = 0.95  # conditional acceptance of the good drafter that is thought of


class Blindness:
    """Nothing drafted at all (K=0 in force), or nothing through the later positions."""

    def __init__(self, settings: ControllerSettings, rng: np.random.Generator) -> None:
        self._settings, self._rng = settings, rng
        self._next_s = 0.0

    def probe(
        self,
        known: Known,
        outlook: Outlook,
        possible: list[int],
        account: ExplorationAccount,
        now_s: float,
    ) -> tuple[int, int, float, float] | None:
        """(column, steps, cost in seconds, gain if the drafter were good) of the shortest
        length that would show a good drafter; None while nothing is due."""
        settings, b = self._settings, known.live.last_batch_size
        seen = self._seen(known)
        if now_s < self._next_s or seen is None:
            return None
        gains = known.survival.gains
        hopeful = gains.copy()
        level = float(gains[seen - 1]) if seen else 1.0
        hopeful[seen:] = level * _GOOD_CHANCE ** np.arange(1, gains.size - seen + 1)
        tokens = 1.0 + np.concatenate(([0.0], np.cumsum(hopeful)))
        steps = probe_steps(settings, None, b)
        for column in possible:
            length = known.plane.lengths[column]
            log_goodput = float(np.log(tokens[length]) - outlook.log_time[b - 1, column])
            gain = log_goodput - float(outlook.current[b - 1])
            cost_s = probe_cost_s(outlook, column, b, steps)
            if length > seen and gain > settings.blind_gain and account.can_pay(cost_s):
                # Not in step with the other engines of a fleet.
                wait_s = settings.blind_tail_s if seen else settings.blind_off_s
                self._next_s = now_s + wait_s * float(self._rng.uniform(0.8, 1.0))
                return column, steps, cost_s, gain
        return None

    def _seen(self, known: Known) -> int | None:
        """Positions that are drafted through; None where no look is due."""
        unseen_s = known.survival.unseen_s
        if unseen_s[0] >= self._settings.blind_off_s:
            return 0
        late = unseen_s >= self._settings.blind_tail_s
        return int(np.argmax(late)) if late.any() else None
