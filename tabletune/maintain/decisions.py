"""Decides about a candidate with the store's own records, writes the decision down, and does it.

Everything here may be run twice, or be killed between any two writes: a decision is an
immutable record, written before the pointer moves, and the pointer moves in one step.
"""

import pathlib
from dataclasses import dataclass
from datetime import UTC, datetime

from tabletune.maintain.confirmed import confirm
from tabletune.maintain.deployments import Deployment
from tabletune.maintain.gates import Candidate, GateDecision, Incumbent, gate, parse_moment
from tabletune.measure.clock import Clock
from tabletune.records.decision_record import Evidence, Outcome, PromotionDecision
from tabletune.records.pointer import Pointer
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store.base import Store
from tabletune.store.errors import MoveRefused
from tabletune.store.promotion import Move, promote
from tabletune.store.signing import Signer

#: Outcomes after which the candidate may go on towards the live channel.
ALLOWED: frozenset[Outcome] = frozenset(("promote", "approve"))


@dataclass(frozen=True)
class Approval:
    """A person's answer. `answers`: the name of the decision that asked."""

    by: str
    approve: bool
    reason: str
    answers: str


@dataclass(frozen=True)
class Decided:
    """A decision, and its name in the store (empty for one that was not worth keeping)."""

    decision: PromotionDecision
    name: str
    version: str
    verdict: str
    changes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        return self.decision.outcome

    @property
    def allowed(self) -> bool:
        return self.outcome in ALLOWED


def decide(
    store: Store,
    deployment: Deployment,
    version: str,
    verdict: str,
    clock: Clock,
    who: str,
    approval: Approval | None = None,
    fingerprint: str | None = None,
) -> Decided:
    """Pass a stored version and its verdict through the deployment's gate.

    Args:
        verdict: its name, empty for none.
        approval: what a person answered to an earlier outcome ``ask``.
        fingerprint: the deployment's present one; None takes the version's.

    Raises:
        MoveRefused: the approval answers something else, or the channel moved since.
        StoreError: something is not in the store, intact.
    """
    pointer, token = store.read_pointer(deployment.channels.live)
    candidate = Candidate(
        version,
        store.get(TableVersion, version),
        store.get(Verdict, verdict) if verdict else None,
    )
    incumbent = _incumbent(store, pointer)
    now = parse_moment(clock.utc()) or datetime.now(UTC)
    said = gate(deployment.gate, deployment.margins, candidate, incumbent, now, fingerprint)
    outcome, reasons = _answered(store, deployment, version, pointer, said, approval)
    parents = candidate.version.parents
    evidence = {
        "verdict": verdict,
        "profile": parents.profile,
        "acceptance_prior": parents.acceptance_prior,
        "qualification": parents.qualification,
    }
    decision = PromotionDecision(
        deployment=deployment.name,
        channel=deployment.channels.live,
        outcome=outcome,
        from_version=pointer.table_version if pointer else "",
        from_pointer=token.state,
        to_version=version,
        reasons=reasons,
        evidence=tuple(Evidence(kind=k, name=name) for k, name in evidence.items() if name),
        policy={k: str(v) for k, v in deployment.gate.model_dump().items()},
        numbers=dict(said.numbers),
        answers=approval.answers if approval else "",
        decided_at=clock.utc(),
        decided_by=approval.by if approval else who,
    )
    if outcome == "nothing_to_do":
        _confirm(deployment, candidate, incumbent)
    in_force_already = pointer is not None and pointer.table_version == version
    name = "" if in_force_already else store.put(decision)  # a run that is repeated adds nothing
    return Decided(decision, name, version, verdict, said.changes)


def carry_out(
    store: Store,
    deployment: Deployment,
    decided: Decided,
    clock: Clock,
    who: str,
    signer: Signer | None = None,
) -> Move:
    """Put an allowed candidate in force on the live channel.

    Done already: nothing is changed, and `Move.moved` is False.

    Raises:
        MoveRefused: the decision does not allow it.
        LostRace: another version came in force since it was decided; decide again.
    """
    if not decided.allowed:
        raise MoveRefused(
            "a decision that allows the promotion",
            tuple(f"{decided.outcome}: {reason}" for reason in decided.decision.reasons),
            "see its reasons",
            can_be_forced=False,
        )
    return promote_live(store, deployment, decided, clock, who, signer)


def promote_live(
    store: Store,
    deployment: Deployment,
    decided: Decided,
    clock: Clock,
    who: str,
    signer: Signer | None,
) -> Move:
    """Move the live pointer from what was in force at the decision to its candidate."""
    channel = deployment.channels.live
    expected = decided.decision.from_version
    current, _ = store.read_pointer(channel)
    if current is not None and current.table_version == decided.version:
        expected = decided.version  # done already, perhaps by a run that was killed after it
    return promote(
        store,
        channel,
        decided.version,
        decided.verdict,
        clock.utc(),
        who,
        f"decision {decided.name}: {decided.decision.reasons[0]}",
        expected_version=expected,
        signer=signer,
    )


def _incumbent(store: Store, pointer: Pointer | None) -> Incumbent | None:
    return pointer and Incumbent(pointer, store.get(TableVersion, pointer.table_version))


def _confirm(deployment: Deployment, candidate: Candidate, incumbent: Incumbent | None) -> None:
    """Note that the table in force is still right, as of the candidate's evidence."""
    moment = parse_moment(candidate.version.created_at)
    if incumbent is None or moment is None:
        return
    if incumbent.version.fingerprint == candidate.version.fingerprint:
        confirm(
            pathlib.Path(deployment.out),
            incumbent.pointer.table_version,
            candidate.version.fingerprint,
            moment,
        )


def _answered(
    store: Store,
    deployment: Deployment,
    version: str,
    pointer: Pointer | None,
    said: GateDecision,
    approval: Approval | None,
) -> tuple[Outcome, tuple[str, ...]]:
    """The gate's outcome and reasons, with a person's answer if there is one."""
    if approval is None or said.outcome == "nothing_to_do":
        return said.outcome, said.reasons
    asked = store.get(PromotionDecision, approval.answers)
    now = pointer.table_version if pointer else ""
    found = (asked.outcome, asked.deployment, asked.to_version, asked.from_version)
    if found != ("ask", deployment.name, version, now):
        raise MoveRefused(
            f"an answer to the question whether {version[:12]} may replace "
            f"{now[:12] or 'nothing'} for {deployment.name!r}",
            (f"one to {found[0]!r} of {found[1]!r}: {found[2][:12]} for {found[3][:12]}",),
            "ask again; what is in force has changed since",
            can_be_forced=False,
        )
    reason = approval.reason or "no reason given"
    if not approval.approve:
        return "reject", (f"rejected by {approval.by}: {reason}", *said.reasons)
    if said.outcome == "refuse":  # since the question it became too old
        return said.outcome, said.reasons
    return "approve", (f"approved by {approval.by}: {reason}", *said.reasons)
