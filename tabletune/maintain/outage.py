"""A server that is away: tried again for as long as it takes, and told once a minute."""

from collections.abc import Callable
from typing import Final

from tabletune.measure.clock import Clock

#: How often an outage is told of, and the longest pause between two tries.
SAY_EVERY_S: Final = 60.0
LONGEST_PAUSE_S: Final = 30.0


class Outage:
    """What is known of a server's outages.

    Args:
        what: the server in words, such as "the Prefect server at http://…".
        say: shows a line to whoever looks after this process.
    """

    def __init__(self, what: str, clock: Clock, say: Callable[[str], object]) -> None:
        self._what, self._clock, self._say = what, clock, say
        self._since_s: float | None = None
        self._said_s = 0.0
        self._tries = 0

    def failed(self, error: BaseException) -> None:
        """A try failed; says so at once for the first, and then once a minute."""
        now_s = self._clock.now_s()
        self._tries += 1
        if self._since_s is None:
            self._since_s = now_s
        elif now_s - self._said_s < SAY_EVERY_S:
            return
        self._said_s = now_s
        self._say(
            f"{self._what} does not answer as it should, for {_lasting(now_s - self._since_s)} "
            f"now ({type(error).__name__}: {error}); nothing new begins until it does, and it "
            "is tried again"
        )

    def ended(self) -> bool:
        """A try went well; whether that ended an outage, which is then said."""
        if self._since_s is None:
            return False
        lasted_s = self._clock.now_s() - self._since_s
        self._since_s, self._tries = None, 0
        self._say(f"{self._what} answers again after {_lasting(lasted_s)}")
        return True

    def pause(self) -> None:
        """Wait before the next try: longer after each that failed, never longer than
        `LONGEST_PAUSE_S`."""
        self._clock.sleep_s(min(2.0 ** min(self._tries, 10), LONGEST_PAUSE_S))


class Every:
    """Something to be done now and then."""

    def __init__(self, interval_s: float, clock: Clock) -> None:
        self._interval_s, self._clock = interval_s, clock
        self._last_s = clock.now_s()

    def due(self) -> bool:
        """Whether it is time; then not again for `interval_s`."""
        now_s = self._clock.now_s()
        if now_s - self._last_s < self._interval_s:
            return False
        self._last_s = now_s
        return True


def _lasting(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
