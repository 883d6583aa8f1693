"""The canary channel: putting a candidate on it, finding one that waits there, ending it.

A run that was killed while a canary waits loses nothing: `pending_canary` finds it again.
"""

import re
from dataclasses import dataclass
from math import isfinite
from typing import Final

from tabletune.maintain.canary import CanaryJudgement
from tabletune.maintain.decisions import Decided, promote_live
from tabletune.maintain.deployments import Deployment
from tabletune.measure.clock import Clock
from tabletune.records.decision_record import Outcome, PromotionDecision
from tabletune.records.pointer import Pointer
from tabletune.store.base import Store
from tabletune.store.errors import MoveRefused
from tabletune.store.promotion import Move, promote, rollback
from tabletune.store.signing import Signer

_DECISION: Final = re.compile(r"canary of decision ([0-9a-f]{64})")


@dataclass(frozen=True)
class Pending:
    """A candidate on the canary channel.

    Attributes:
        decided: the decision that allowed it.
        pointer: the canary channel's state.
    """

    decided: Decided
    pointer: Pointer


@dataclass(frozen=True)
class Note:
    """What is written down about a canary."""

    channel: str
    outcome: Outcome
    reasons: tuple[str, ...]
    numbers: dict[str, float]


def wants_canary(store: Store, deployment: Deployment) -> bool:
    """Whether a candidate goes to the canary channel first.

    A first table does not: there is nothing in force that canaries could be compared with.
    """
    if deployment.channels.canary is None or deployment.canary.minutes == 0:
        return False
    return store.read_pointer(deployment.channels.live)[0] is not None


def begin_canary(
    store: Store,
    deployment: Deployment,
    decided: Decided,
    clock: Clock,
    who: str,
    signer: Signer | None = None,
) -> Pending:
    """Put an allowed candidate in force on the canary channel. Idempotent.

    Raises:
        MoveRefused: the decision does not allow it.
        LostRace: another run moved the canary channel just now.
    """
    if not decided.allowed:
        raise MoveRefused("a decision that allows it", (decided.outcome,), "see its reasons", False)
    channel = _canary(deployment)
    move = promote(
        store,
        channel,
        decided.version,
        decided.verdict,
        clock.utc(),
        who,
        f"canary of decision {decided.name}",
        signer=signer,
    )
    if move.moved:
        reasons = (f"first on the canary channel for {deployment.canary.minutes:g} minutes",)
        note = Note(channel, "canary_begin", reasons, {})
        _write(store, deployment, decided, note, clock, who)
    return Pending(decided, move.pointer)


def pending_canary(store: Store, deployment: Deployment) -> Pending | None:
    """The candidate that waits on the canary channel; None where none does.

    One whose decision was about another version than is live now is none: it was overtaken.
    """
    if deployment.channels.canary is None:
        return None
    pointer, _ = store.read_pointer(deployment.channels.canary)
    live, _ = store.read_pointer(deployment.channels.live)
    if pointer is None or live is None or pointer.table_version == live.table_version:
        return None
    match = _DECISION.search(pointer.reason)
    if pointer.action == "rollback" or match is None:
        return None
    decision = store.get(PromotionDecision, match.group(1))
    if decision.from_version != live.table_version:
        return None
    decided = Decided(decision, match.group(1), pointer.table_version, pointer.verdict)
    return Pending(decided, pointer)


def end_canary(
    store: Store,
    deployment: Deployment,
    pending: Pending,
    judgement: CanaryJudgement,
    clock: Clock,
    who: str,
    signer: Signer | None = None,
) -> Move:
    """Put the canary's version on the live channel, or its channel back to what is live.

    Raises:
        ValueError: the judgement is to go on.
        LostRace: another version went live since it was decided.
    """
    if judgement.outcome == "go on":
        raise ValueError("expected a canary that is decided, found 'go on'; wait")
    good = judgement.outcome == "promote"
    outcome: Outcome = "canary_promote" if good else "canary_back"
    channel = deployment.channels.live if good else _canary(deployment)
    found = (("ratio", judgement.ratio), ("low", judgement.low), ("high", judgement.high))
    numbers = {name: value for name, value in found if value is not None and isfinite(value)}
    decided = pending.decided
    note = Note(channel, outcome, judgement.reasons, numbers)
    _write(store, deployment, decided, note, clock, who)
    if good:
        return promote_live(store, deployment, decided, clock, who, signer)
    return canary_back(store, deployment, clock, who, judgement.reasons[0], signer)


def canary_back(
    store: Store,
    deployment: Deployment,
    clock: Clock,
    who: str,
    reason: str,
    signer: Signer | None = None,
) -> Move:
    """Put on the canary channel what is live. Idempotent.

    Raises:
        MoveRefused: nothing is live.
    """
    channel = _canary(deployment)
    live, _ = store.read_pointer(deployment.channels.live)
    if live is None:
        raise MoveRefused("a version on the live channel", ("none",), "promote one first", False)
    target, now = live.table_version, clock.utc()
    if any(state.table_version == target for state in store.history(channel)):
        return rollback(store, channel, now, who, reason, target, signer)
    verdict = live.verdict or None
    return promote(store, channel, target, verdict, now, who, reason, force=True, signer=signer)


def _canary(deployment: Deployment) -> str:
    channel = deployment.channels.canary
    if channel is None:
        advice = "name one under channels.canary"
        raise MoveRefused(f"a canary channel for {deployment.name!r}", ("none",), advice, False)
    return channel


def _write(
    store: Store,
    deployment: Deployment,
    decided: Decided,
    note: Note,
    clock: Clock,
    who: str,
) -> None:
    pointer, token = store.read_pointer(note.channel)
    store.put(
        PromotionDecision(
            deployment=deployment.name,
            channel=note.channel,
            outcome=note.outcome,
            from_version=pointer.table_version if pointer else "",
            from_pointer=token.state,
            to_version=decided.version,
            reasons=note.reasons,
            policy={k: str(v) for k, v in deployment.canary.model_dump().items()},
            numbers=note.numbers,
            answers=decided.name,
            decided_at=clock.utc(),
            decided_by=who,
        )
    )
