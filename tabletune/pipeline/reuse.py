"""How old what an earlier run measured may be, so that this run may use it again.

Without a limit a run that was killed between measuring and promoting would leave a verdict that
every later run takes up, and that every gate refuses for its age.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf


@dataclass(frozen=True)
class Reuse:
    """What may be used again.

    Attributes:
        evidence_s: oldest qualification, acceptance and profile, in seconds.
        verdict_s: oldest verdict.
        ahead_s: how far in the future something may be dated: clocks of hosts differ.
    """

    evidence_s: float = inf
    verdict_s: float = inf
    ahead_s: float = inf

    def evidence(self, at: str, now: str) -> bool:
        """Whether evidence of the moment `at` may be used; both ISO 8601 with their zone."""
        return self._holds(at, now, self.evidence_s)

    def verdict(self, at: str, now: str) -> bool:
        """The same for a verdict."""
        return self._holds(at, now, self.verdict_s)

    def _holds(self, at: str, now: str, oldest_s: float) -> bool:
        if oldest_s == self.ahead_s == inf:
            return True
        try:
            age = datetime.fromisoformat(now) - datetime.fromisoformat(at)
        except (ValueError, TypeError):  # no date, or one without its zone: nobody knows its age
            return False
        return -self.ahead_s <= age / timedelta(seconds=1) <= oldest_s


#: For people at the command line, who see the dates of what is reused.
ANY_AGE = Reuse()
