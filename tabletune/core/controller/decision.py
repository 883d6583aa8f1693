"""What the controller wants done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DecisionKind = Literal["hold", "swap", "explore", "revert", "off"]


@dataclass(frozen=True)
class Decision:
    """One decision; acting on it is someone else's job.

    kind: "hold" nothing changes; "swap" put `lengths` in force; "explore" run `probe` once and
    then the table again; "revert" put `lengths` in force because something looked wrong;
    "off" put `lengths` (the boot table) in force and stop adapting.
    lengths: draft length per batch size, [b-1] for batch size b; None where nothing changes.
    probe: (draft length, steps) pairs, run one after the other.
    reason: why, in words. predicted_gain: share of throughput over the live batch sizes.
    evidence: the numbers behind it, for a reader afterwards.
    """

    kind: DecisionKind
    reason: str
    lengths: tuple[int, ...] | None = None
    probe: tuple[tuple[int, int], ...] = ()
    predicted_gain: float = 0.0
    evidence: Mapping[str, float] = field(default_factory=dict[str, float])

    def to_dict(self) -> dict[str, object]:
        """Plain values for a log."""
        return {
            "kind": self.kind,
            "reason": self.reason,
            "lengths": None if self.lengths is None else list(self.lengths),
            "probe": [list(part) for part in self.probe],
            "predicted_gain": self.predicted_gain,
            "evidence": dict(self.evidence),
        }
