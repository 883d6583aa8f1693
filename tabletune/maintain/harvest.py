"""From the live snapshots of a fleet to a new acceptance prior. Pure.

The draft length varies while engines serve, so position i was offered less often than position
1, while a prior's counts all stand for one draft length (records/acceptance.py). They are
brought to that by the number of request-steps at which the deepest counted position has as
many drafts as were really seen: rates are kept at every position, and none looks better
measured than it was.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from tabletune.core.counts import SurvivalCounts
from tabletune.core.survival import proposal_rate, survival
from tabletune.core.words import FloatArray
from tabletune.maintain.drift import is_recent
from tabletune.maintain.policies import DriftPolicy
from tabletune.records.acceptance import LIVE, AcceptancePrior, PositionCounts
from tabletune.records.snapshot import LiveSnapshot


@dataclass(frozen=True)
class Harvest:
    """A prior from live traffic, or why there is none.

    Attributes:
        engines: run ids that counted.
        reasons: in words: what was left out, or what is missing.
    """

    prior: AcceptancePrior | None
    engines: tuple[str, ...]
    reasons: tuple[str, ...]


def harvest(
    policy: DriftPolicy,
    snapshots: Sequence[LiveSnapshot],
    fingerprint: str,
    draft_length: int,
    now: datetime,
) -> Harvest:
    """Pool the counts of all engines with `fingerprint` whose snapshots are recent.

    Args:
        draft_length: of the prior; positions that too few drafts reached have no counts, and
            are extrapolated by whoever uses them.
    """
    now_s = now.timestamp()
    recent = [one for one in snapshots if is_recent(one, policy, now_s)]
    same = [one for one in recent if one.fingerprint == fingerprint and one.offered_through]
    reasons: list[str] = []
    if len(recent) < len(snapshots):
        reasons.append(f"{len(snapshots) - len(recent)} snapshots were too old")
    if len(same) < len(recent):
        reasons.append(f"{len(recent) - len(same)} were of another fingerprint or never drafted")
    engines = tuple(sorted(one.engine.run_id for one in same))
    pooled = pool([one.survival_counts() for one in same], draft_length)
    deep = int(np.count_nonzero(pooled.drafted_through >= policy.least_request_steps))
    if deep == 0:
        found = f"{pooled.drafted_through[0]:.0f} drafts, {policy.least_request_steps} are needed"
        return Harvest(None, engines, (found, *reasons))
    if deep < draft_length:
        reasons.append(f"positions {deep + 1}–{draft_length} were drafted too rarely to count")
    prior = AcceptancePrior(
        fingerprint=fingerprint,
        draft_length=draft_length,
        source="measured",
        prompt_count=len(engines),
        prompts_hash=f"{LIVE}{_names_hash(same)}",
        counts=as_fixed_length(pooled, deep),
        wall_time_s=sum(one.to_unix_s - one.from_unix_s for one in same),
        measured_at=datetime.fromtimestamp(max(one.to_unix_s for one in same), UTC).isoformat(
            timespec="seconds"
        ),
    )
    return Harvest(prior, engines, tuple(reasons))


def pool(counts: Sequence[SurvivalCounts], positions: int) -> SurvivalCounts:
    """The sum over engines, cut or filled with zeros to so many positions."""
    columns = [np.zeros(positions) for _ in range(3)]
    steps = 0.0
    for one in counts:
        parts = (one.drafted_through, one.accepted_through, one.offered_through)
        for column, part in zip(columns, parts, strict=True):
            shared = min(positions, part.size)
            column[:shared] += part[:shared]
        steps += one.request_steps
    return SurvivalCounts(columns[0], columns[1], steps, columns[2])


def as_fixed_length(counts: SurvivalCounts, deep: int) -> PositionCounts:
    """The same rates as if every draft had been of one length, for the first `deep` positions.

    Raises:
        ValueError: `deep` positions were not drafted.
    """
    if not 1 <= deep <= counts.drafted_through.size or counts.drafted_through[deep - 1] < 1:
        raise ValueError(f"expected 1 … {counts.drafted_through.size} drafted positions: {deep}")
    first = SurvivalCounts(
        counts.drafted_through[:deep],
        counts.accepted_through[:deep],
        counts.request_steps,
        counts.offered_through[:deep],
    )
    proposed, accepted = proposal_rate(first), survival(first)
    request_steps = math.ceil(float(counts.drafted_through[deep - 1]) / float(proposed[-1]))
    drafted = _falling(np.rint(request_steps * proposed))
    passed = np.minimum(_falling(np.rint(drafted * accepted)), drafted)
    rest = (0,) * (counts.drafted_through.size - deep)
    return PositionCounts(
        drafted_through=(*(int(n) for n in drafted), *rest),
        accepted_through=(*(int(n) for n in passed), *rest),
        request_steps=request_steps,
    )


def _falling(values: FloatArray) -> FloatArray:
    """Rounding may lift a value above the one before it."""
    return np.minimum.accumulate(values)


def _names_hash(snapshots: Sequence[LiveSnapshot]) -> str:
    names = "\n".join(sorted(one.content_hash for one in snapshots))
    return hashlib.sha256(names.encode()).hexdigest()[:16]
