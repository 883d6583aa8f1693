"""The clock that measurements use; passed in, so that tests need no waiting."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds, sleeping, and the calendar time for records."""

    def now_s(self) -> float: ...

    def sleep_s(self, seconds: float) -> None: ...

    def utc(self) -> str:
        """ISO 8601 in UTC, to the second."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_s(self) -> float:
        return time.monotonic()

    def sleep_s(self, seconds: float) -> None:
        time.sleep(seconds)

    def utc(self) -> str:
        return datetime.now(UTC).isoformat(timespec="seconds")
