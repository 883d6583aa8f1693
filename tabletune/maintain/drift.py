"""Whether live traffic is off what a table was built from. Pure.

Engines are the units: requests of one engine resemble each other, so the spread between
engines, and not the number of requests, says how sure a mean over the fleet is.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tabletune.core.counts import SurvivalCounts
from tabletune.core.quantiles import normal_halfwidth, student_halfwidth
from tabletune.core.survival import survival
from tabletune.maintain.policies import DriftPolicy
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.snapshot import LiveSnapshot

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Finding:
    """One thing that is off.

    `expected` and `found` are survival at `position`, or 1 and the ratio of live to profiled
    step time (position 0). `low` … `high` is the interval of `found`.
    """

    kind: Literal["survival", "step_time"]
    position: int
    expected: float
    found: float
    low: float
    high: float

    def words(self) -> str:
        what = f"survival at position {self.position}" if self.position else "step time ratio"
        return (
            f"{what}: live {self.found:.3f} ({self.low:.3f} … {self.high:.3f}), "
            f"expected {self.expected:.3f}"
        )


@dataclass(frozen=True)
class DriftReport:
    """What live traffic says of the table in force.

    Attributes:
        findings: what is off by more than the limits, wholly outside its interval.
        engines: snapshots that counted.
        notes: what is no drift, but should be known.
        survival: live, per position with enough request-steps.
        step_time_ratio: live over profiled, None where nothing is known.
    """

    findings: tuple[Finding, ...]
    engines: int
    notes: tuple[str, ...]
    survival: tuple[float, ...]
    step_time_ratio: float | None

    @property
    def drifted(self) -> bool:
        return bool(self.findings)

    def words(self) -> tuple[str, ...]:
        return tuple(finding.words() for finding in self.findings)


def drift(
    policy: DriftPolicy,
    prior: AcceptancePrior,
    snapshots: Sequence[LiveSnapshot],
    fingerprint: str,
    now_unix_s: float,
) -> DriftReport:
    """Compare the fleet with the prior and with the profile.

    Args:
        fingerprint: of the table in force; engines of another one do not count.
    """
    recent = [one for one in snapshots if is_recent(one, policy, now_unix_s)]
    counted = [one for one in recent if one.fingerprint == fingerprint]
    live = tuple(_survival(counted, policy))
    expected = survival(
        SurvivalCounts(
            list(prior.counts.drafted_through),
            list(prior.counts.accepted_through),
            prior.counts.request_steps,
        )
    )
    findings = [
        Finding("survival", i, float(before), *estimate)
        for i, (before, estimate) in enumerate(zip(expected, live, strict=False), start=1)
        if _outside(float(before), estimate, policy.survival)
    ]
    ratio = _step_time_ratio(counted)
    if ratio is not None and _outside(1.0, ratio, policy.step_time):
        findings.append(Finding("step_time", 0, 1.0, *ratio))
    return DriftReport(
        findings=tuple(findings),
        engines=len(counted),
        notes=tuple(_notes(snapshots, recent, counted)),
        survival=tuple(estimate[0] for estimate in live),
        step_time_ratio=None if ratio is None else ratio[0],
    )


def is_recent(snapshot: LiveSnapshot, policy: DriftPolicy, now_unix_s: float) -> bool:
    """Whether a snapshot counts. One of a clock that is far ahead does not: it would for ever."""
    return abs(now_unix_s - snapshot.to_unix_s) <= policy.snapshot_max_age_h * 3600


def _outside(expected: float, estimate: tuple[float, float, float], limit: float) -> bool:
    _, low, high = estimate
    return low > expected + limit or high < expected - limit


def _survival(
    snapshots: Sequence[LiveSnapshot], policy: DriftPolicy
) -> Iterator[tuple[float, float, float]]:
    """Per position (S, low, high), as far as there are enough request-steps."""
    positions = max((len(one.offered_through) for one in snapshots), default=0)
    for i in range(positions):
        with_it = [one.counts for one in snapshots if len(one.offered_through) > i]
        drafted = np.array([counts.drafted_through[i] for counts in with_it], dtype=float)
        accepted = np.array([counts.accepted_through[i] for counts in with_it], dtype=float)
        total = float(drafted.sum())
        if total < policy.least_request_steps:
            return
        rate = float(accepted.sum() / total)
        half = normal_halfwidth(CONFIDENCE) * math.sqrt(max(rate * (1 - rate), 1e-9) / total)
        if drafted.size > 1:
            # Variance of a ratio of sums over clusters.
            rest = accepted - rate * drafted
            n = drafted.size
            spread = math.sqrt(float((rest**2).sum()) * n / (n - 1)) / total
            half = max(half, student_halfwidth(CONFIDENCE, n - 1) * spread)
        yield rate, max(0.0, rate - half), min(1.0, rate + half)


def _step_time_ratio(snapshots: Sequence[LiveSnapshot]) -> tuple[float, float, float] | None:
    """The fleet's mean ratio of live to profiled step time, with its interval."""
    logs: list[float] = []
    for snapshot in snapshots:
        pairs = [(one.residual, one.steps) for one in snapshot.cells if one.residual is not None]
        if pairs:
            values, steps = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
            logs.append(float(np.average(np.log(values), weights=steps)))
    if not logs:
        return None
    mean = float(np.mean(logs))
    half = 0.0
    if len(logs) > 1:
        error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
        half = student_halfwidth(CONFIDENCE, len(logs) - 1) * error
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _notes(
    snapshots: Sequence[LiveSnapshot],
    recent: Sequence[LiveSnapshot],
    counted: Sequence[LiveSnapshot],
) -> Iterator[str]:
    if len(recent) < len(snapshots):
        yield f"{len(snapshots) - len(recent)} snapshots are too old to count"
    if len(counted) < len(recent):
        yield f"{len(recent) - len(counted)} engines run under another fingerprint"
    fallen = [one.engine.run_id for one in counted if one.decisions.falls]
    if fallen:
        yield f"{len(fallen)} engines fell back to their boot table: {', '.join(fallen[:5])}"
    idle = sum(one.mode == "off" for one in counted)
    if idle:
        yield f"{idle} engines are switched off"
