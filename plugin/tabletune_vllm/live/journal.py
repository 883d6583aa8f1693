"""The last decisions and refusals, kept for the status page; bounded."""

from collections import deque
from collections.abc import Mapping

DECISIONS_KEPT = 32
REFUSALS_KEPT = 16
REASON_LENGTH_MAX = 500


class Journal:
    """What was decided (other than to hold) and what was refused, with counts since start."""

    def __init__(self) -> None:
        self._decisions: deque[dict[str, object]] = deque(maxlen=DECISIONS_KEPT)
        self._refusals: deque[dict[str, object]] = deque(maxlen=REFUSALS_KEPT)
        self.decisions_by_kind: dict[str, int] = {}
        self.refusals = 0

    def decided(self, unix_s: float, applied: bool, decision: Mapping[str, object]) -> None:
        """Count a decision and keep it unless it is to hold."""
        kind = str(decision["kind"])
        self.decisions_by_kind[kind] = self.decisions_by_kind.get(kind, 0) + 1
        if kind != "hold":
            self._decisions.append({"unix_s": unix_s, "applied": applied, **decision})

    def refused(self, unix_s: float, reason: str) -> bool:
        """Count a refusal; whether it is another one than the last."""
        self.refusals += 1
        reason = reason[:REASON_LENGTH_MAX]
        last = self._refusals[-1] if self._refusals else None
        if last is not None and last["reason"] == reason:
            last["times"] = int(str(last["times"])) + 1
            last["last_unix_s"] = unix_s
            return False
        self._refusals.append(
            {"first_unix_s": unix_s, "last_unix_s": unix_s, "times": 1, "reason": reason}
        )
        return True

    def recent(self) -> dict[str, object]:
        """Plain values, newest last."""
        return {
            "last_decisions": [dict(entry) for entry in list(self._decisions)],
            "decisions_by_kind": dict(self.decisions_by_kind),
            "refusals": self.refusals,
            "last_refusals": [dict(entry) for entry in list(self._refusals)],
        }
