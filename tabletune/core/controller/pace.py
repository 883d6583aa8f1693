"""How readily a swap is made: after a change at once, in steady traffic seldom."""

from __future__ import annotations

from collections import deque

from tabletune.core.controller.settings import ControllerSettings


class Pace:
    """Times are the controller's own clock, in seconds."""

    def __init__(self, settings: ControllerSettings, now_s: float) -> None:
        self._settings = settings
        self._swaps_s: deque[float] = deque()
        self.start(now_s)

    def start(self, now_s: float) -> None:
        """Another table version is followed: nothing of it was seen yet."""
        self._settling_from_s = now_s
        self._swapped_s = now_s - self._settings.steady_dwell_s
        self._seen_s = 0.0

    def seen(self, busy_s: float) -> None:
        """The engine served for so long."""
        self._seen_s += busy_s

    def unsettle(self, now_s: float) -> None:
        """Traffic, or what is in force, has changed."""
        self._settling_from_s = now_s

    def replaced(self, now_s: float, by_choice: bool) -> None:
        """Another table came into force; only those by choice count for the rate."""
        self._swapped_s = now_s
        if by_choice:
            self._swaps_s.append(now_s)

    def settling(self, now_s: float) -> bool:
        """Whether start, promotion or a change of traffic was a short time ago."""
        return now_s - self._settling_from_s < self._settings.settle_s

    def may_swap(self, now_s: float) -> bool:
        """Enough was seen, the last swap is long enough ago, and there were not too many."""
        settings = self._settings
        while self._swaps_s and self._swaps_s[0] <= now_s - 60.0:
            self._swaps_s.popleft()
        dwell_s = settings.settling_dwell_s if self.settling(now_s) else settings.steady_dwell_s
        return (
            self._seen_s >= settings.first_decision_s
            and now_s - self._swapped_s >= dwell_s
            and len(self._swaps_s) < settings.most_swaps_per_minute
        )

    def least_gain(self, now_s: float) -> float:
        """Share of throughput that a swap has to gain."""
        settings = self._settings
        return settings.settling_gain if self.settling(now_s) else settings.steady_gain

    def certainty_z(self, now_s: float) -> float:
        """Standard deviations of the gain that are asked on top of it."""
        return self._settings.settling_z if self.settling(now_s) else self._settings.steady_z

    def most_doubt(self, now_s: float) -> float:
        """At most so much is asked for doubt: at first probes make sure; what they have not
        cleared up after a while is decided by the best guess. Later there is time to probe."""
        settings = self._settings
        if not self.settling(now_s):
            return settings.steady_doubt
        waited = (now_s - self._settling_from_s) / settings.patience_s
        return max(self.least_gain(now_s), settings.early_doubt * (1.0 - waited))
