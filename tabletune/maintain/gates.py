"""Whether a validated table may replace the one in force. Pure: evidence in, decision out.

The reasons of every rule are collected; the gravest outcome among them wins:

    nothing to do   it is in force already, or changes nothing worth a change
    refuse          what is there does not prove it
    ask             it may be right, but a person is to look
    promote         none of these
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np

from tabletune.maintain.edge_moves import edge_moves, largest_length_change
from tabletune.maintain.policies import GatePolicy
from tabletune.records.diff import plan_diff_words, version_diff_words
from tabletune.records.pointer import Pointer
from tabletune.records.policy import INCUMBENT
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Margins, Verdict

Outcome = Literal["promote", "ask", "refuse", "nothing_to_do"]


@dataclass(frozen=True)
class Candidate:
    """What is to be promoted. `name`: its content hash in the store."""

    name: str
    version: TableVersion
    verdict: Verdict | None


@dataclass(frozen=True)
class Incumbent:
    """What is in force on the channel."""

    pointer: Pointer
    version: TableVersion


@dataclass(frozen=True)
class GateDecision:
    """What the gate says.

    Attributes:
        reasons: why, the decisive ones first; never empty.
        changes: what the candidate changes, in words.
        numbers: the measured gain (share; absent if unknown) and the largest movements.
    """

    outcome: Outcome
    reasons: tuple[str, ...]
    changes: tuple[str, ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()


def gate(
    policy: GatePolicy,
    margins: Margins,
    candidate: Candidate,
    incumbent: Incumbent | None,
    now: datetime,
    fingerprint: str | None = None,
) -> GateDecision:
    """Decide about one candidate.

    Args:
        margins: what the deployment demands; a verdict judged by laxer ones does not count.
        now: with its zone.
        fingerprint: the deployment's present one; None takes the candidate's.
    """
    version = candidate.version
    changes = tuple(version_diff_words(incumbent and incumbent.version, version))
    numbers = tuple(_numbers(candidate, incumbent))
    idle = tuple(_idle(policy, candidate, incumbent))
    if incumbent is not None and incumbent.pointer.table_version == candidate.name:
        return GateDecision("nothing_to_do", idle, changes, numbers)
    refusals = tuple(_refusals(policy, margins, candidate, incumbent, now, fingerprint))
    if refusals:
        return GateDecision("refuse", (*refusals, *idle), changes, numbers)
    if idle:
        return GateDecision("nothing_to_do", idle, changes, numbers)
    questions = tuple(_questions(policy, candidate, incumbent))
    merits = tuple(_merits(candidate, incumbent))
    if questions and policy.approval != "never":
        return GateDecision("ask", (*questions, *merits), changes, numbers)
    unasked = tuple(f"no person is asked by this policy although {one}" for one in questions)
    return GateDecision("promote", (*merits, *unasked), changes, numbers)


def measured_gain(candidate: Candidate, incumbent: Incumbent | None) -> float | None:
    """Geometric mean over concurrencies of the throughput ratio to the incumbent, less 1.

    None where the verdict did not compare with the version in force.
    """
    verdict = candidate.verdict
    if verdict is None or incumbent is None:
        return None
    if verdict.incumbent_version != incumbent.pointer.table_version:
        return None
    ratios = [one.ratio for one in verdict.ratios if one.policy == INCUMBENT and one.ratio > 0]
    return float(np.exp(np.mean(np.log(ratios)))) - 1.0 if ratios else None


def _idle(policy: GatePolicy, candidate: Candidate, incumbent: Incumbent | None) -> Iterator[str]:
    """Why nothing needs to be done."""
    if incumbent is None:
        return
    if incumbent.pointer.table_version == candidate.name:
        yield f"{candidate.name[:12]} is in force already"
        return
    if incumbent.version.fingerprint != candidate.version.fingerprint:
        return  # the table in force was measured for something else: worth a change by itself
    if not version_diff_words(incumbent.version, candidate.version):
        yield "the table in force has the same fingerprint, lengths and capture plan"
        return
    if (incumbent.version.objective, incumbent.version.max_tpot_s) != (
        candidate.version.objective,
        candidate.version.max_tpot_s,
    ):
        return  # its owner wants another objective, whatever that gains in throughput
    gain = measured_gain(candidate, incumbent)
    if gain is not None and gain < policy.least_gain:
        yield (
            f"measured gain over the table in force {gain:+.1%}, less than the "
            f"{policy.least_gain:.1%} that is worth a change"
        )


def _refusals(
    policy: GatePolicy,
    margins: Margins,
    candidate: Candidate,
    incumbent: Incumbent | None,
    now: datetime,
    fingerprint: str | None,
) -> Iterator[str]:
    version, verdict = candidate.version, candidate.verdict
    if fingerprint is not None and version.fingerprint != fingerprint:
        yield (
            f"it was measured for fingerprint {version.fingerprint[:12]}, the deployment has "
            f"{fingerprint[:12]} now"
        )
    yield from _age("the evidence", version.created_at, policy.evidence_max_age_d * 24, policy, now)
    if verdict is None:
        yield "there is no verdict"
        return
    if not verdict.passed:
        yield from (f"the verdict failed: {reason}" for reason in verdict.reasons)
    if verdict.table_version != candidate.name:
        yield f"the verdict is for table version {verdict.table_version[:12]}"
    if verdict.fingerprint != version.fingerprint:
        yield f"the verdict was measured under fingerprint {verdict.fingerprint[:12]}"
    in_force = incumbent.pointer.table_version if incumbent else ""
    if verdict.incumbent_version != in_force:
        yield (
            f"the verdict compared it with {verdict.incumbent_version[:12] or 'no incumbent'}, "
            f"but {in_force[:12] or 'nothing'} is in force; validate it again"
        )
    if policy.approval == "never" and _rolled_back(candidate, incumbent):
        yield "it was rolled back, and this policy asks no person; promote it by hand"
    if policy.require_stock_check and verdict.stock is None:
        yield "no stock engine was shown to follow the table"
    yield from _laxer(verdict.margins, margins)
    yield from _age("the verdict", verdict.validated_at, policy.verdict_max_age_h, policy, now)


def _laxer(used: Margins, demanded: Margins) -> Iterator[str]:
    for name in ("best_fixed", "incumbent", "no_speculation", "slack"):
        if getattr(used, name) > getattr(demanded, name):
            yield (
                f"the verdict allowed a margin {name} of {getattr(used, name):g}, the deployment "
                f"allows {getattr(demanded, name):g}"
            )
    if used.confidence < demanded.confidence:
        yield (
            f"the verdict has a confidence of {used.confidence:g}, the deployment demands "
            f"{demanded.confidence:g}"
        )


def _age(what: str, at: str, most_h: float, policy: GatePolicy, now: datetime) -> Iterator[str]:
    moment = parse_moment(at)
    if moment is None:
        yield f"{what} has no readable date ({at!r:.40})"
        return
    age_h = (now - moment) / timedelta(hours=1)
    if age_h * 3600 < -policy.clock_skew_s:
        yield (
            f"{what} is dated {-age_h:.1f} h in the future ({at}); correct the clocks of the "
            "machine that measured or of this one"
        )
    elif age_h > most_h:
        yield f"{what} is {age_h:.1f} h old, more than {most_h:g} h; measure again"


def _questions(
    policy: GatePolicy, candidate: Candidate, incumbent: Incumbent | None
) -> Iterator[str]:
    """Why a person is to look."""
    if policy.approval == "always":
        yield "every promotion of this deployment needs a person's approval"
    if incumbent is None:
        if policy.ask_first:
            yield "it would be the first table of this channel"
        return
    old, new = incumbent.version, candidate.version
    for move in edge_moves(old.table, new.table):
        if move.factor > policy.largest_edge_factor:
            yield f"{move.words()}, more than ×{policy.largest_edge_factor:g}"
    change = largest_length_change(old.table, new.table)
    if change > policy.largest_length_change:
        yield f"a draft length changes by {change}, more than {policy.largest_length_change}"
    restart = plan_diff_words(old.plan, new.plan)
    if restart:
        yield f"engines must be started differently: {'; '.join(restart)}"
    if incumbent.pointer.action == "force":
        yield f"the table in force was forced: {incumbent.pointer.reason}"
    if incumbent.pointer.action == "rollback":
        from_ = "from this very table" if _rolled_back(candidate, incumbent) else "to its table"
        yield f"the channel was rolled back {from_}: {incumbent.pointer.reason}"


def _rolled_back(candidate: Candidate, incumbent: Incumbent | None) -> bool:
    if incumbent is None or incumbent.pointer.action != "rollback":
        return False
    return incumbent.pointer.previous_version == candidate.name


def _merits(candidate: Candidate, incumbent: Incumbent | None) -> Iterator[str]:
    if incumbent is None:
        yield "a passing verdict; it is the first table of this channel"
        return
    gain = measured_gain(candidate, incumbent)
    against = "which it was not comparable with" if gain is None else f"gain {gain:+.1%}"
    yield f"a passing verdict against {incumbent.pointer.table_version[:12]} ({against})"
    if incumbent.version.fingerprint != candidate.version.fingerprint:
        yield "the table in force was measured for another fingerprint"


def _numbers(candidate: Candidate, incumbent: Incumbent | None) -> Iterator[tuple[str, float]]:
    gain = measured_gain(candidate, incumbent)
    if gain is not None:
        yield "measured_gain", round(gain, 6)
    if incumbent is not None:
        old, new = incumbent.version.table, candidate.version.table
        moves = [move.factor for move in edge_moves(old, new)]
        yield "largest_edge_factor", round(max(moves, default=1.0), 6)
        yield "largest_length_change", float(largest_length_change(old, new))


def parse_moment(text: str) -> datetime | None:
    """An ISO 8601 time with its zone, as records hold it; None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo is not None else None
