"""For how long an engine has taken no step, by looks at it."""

from tabletune.measure.clock import Clock

#: The most that passes for quiet from one look to the next, the look included. A machine that stood
#: still (a suspended guest, a frozen container) held up the engine and the one who looks alike.
LOOK_MOST_S = 5.0


class Quiet:
    """Seconds without a step, while somebody looked.

    Args:
        clock: time between looks is taken from it.

    Attributes:
        quiet_s: since the last look that found steps, each time between looks counted as
            `LOOK_MOST_S` at most.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_s = clock.now_s()
        self.quiet_s = 0.0

    def look(self, stepped: bool) -> None:
        """A look has ended; `stepped`: it found new steps."""
        now_s = self._clock.now_s()
        between_s, self._looked_s = now_s - self._looked_s, now_s
        self.quiet_s = 0.0 if stepped else self.quiet_s + min(between_s, LOOK_MOST_S)
