"""A clock that sleeping moves on and that takes no time."""


class SteppingClock:
    """s: seconds slept so far, and whatever a test adds to them."""

    def __init__(self) -> None:
        self.s = 0.0

    def now_s(self) -> float:
        return self.s

    def sleep_s(self, seconds: float) -> None:
        self.s += seconds

    def utc(self) -> str:
        return "2026-01-01T00:00:00+00:00"
