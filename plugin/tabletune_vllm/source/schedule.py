"""When the source is asked next: jittered, ever more rarely while it does not answer."""

import random

#: Engines that were started together must not ask together.
JITTER = 0.2
LONGEST_BACK_OFF_S = 60.0


class Schedule:
    """Times of polls on a clock that may jump.

    interval_s: between polls while the source answers; it grows by doubling, up to a minute
    or the interval itself, while it does not.
    """

    def __init__(self, interval_s: float, rng: random.Random) -> None:
        self.interval_s = interval_s
        self.failures = 0
        self._rng = rng
        self._asked_s: float | None = None
        self._pause_s = 0.0

    @property
    def next_s(self) -> float:
        """When the next poll is due; minus infinity before the first."""
        return float("-inf") if self._asked_s is None else self._asked_s + self._pause_s

    def due(self, now_s: float) -> bool:
        """Whether to ask now; also when the clock was put back."""
        return self._asked_s is None or now_s >= self.next_s or now_s < self._asked_s

    def asked(self, now_s: float, answered: bool) -> None:
        """Note a poll and whether the source answered."""
        self.failures = 0 if answered else self.failures + 1
        longest_s = max(self.interval_s, LONGEST_BACK_OFF_S)
        pause_s = min(self.interval_s * 2.0 ** min(self.failures, 16), longest_s)
        self._asked_s = now_s
        self._pause_s = pause_s * self._rng.uniform(1.0 - JITTER, 1.0 + JITTER)
