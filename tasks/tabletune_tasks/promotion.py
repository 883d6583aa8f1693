"""Tasks that decide about pointers and move them. What is done is found done when repeated."""

import os
import pathlib
from datetime import datetime

from prefect.events import emit_event

from tabletune.maintain.confirmed import confirm
from tabletune.maintain.decisions import Approval, Decided, carry_out, decide
from tabletune.maintain.deployments import Deployment
from tabletune.maintain.gates import Candidate, GateDecision, Incumbent, gate
from tabletune.measure.clock import SystemClock
from tabletune.pipeline.staged_run import StagedRun
from tabletune.store.base import Store
from tabletune.store.promotion import Move, rollback
from tabletune.store.signing import signer_from
from tabletune_tasks.calls import library_task
from tabletune_tasks.names import DRIFT_DETECTED


@library_task("gate", timeout_s=300)
def pass_gate(
    deployment: Deployment, run: StagedRun, who: str, approval: Approval | None = None
) -> Decided:
    """Pass the candidate through the deployment's gate; the decision is kept in the store."""
    return decide(
        run.store,
        deployment,
        run.build_made.version.content_hash,
        "" if run.verdict is None else run.verdict.content_hash,
        run.clock,
        who,
        approval,
        run.target.fingerprint.identity,
    )


@library_task("promote", timeout_s=300)
def promote(deployment: Deployment, store: Store, decided: Decided, who: str) -> Move:
    """Put what was decided in force on the live channel."""
    return carry_out(store, deployment, decided, SystemClock(), who, signer_from(os.environ))


@library_task("ask gate", timeout_s=300)
def ask_gate(deployment: Deployment, run: StagedRun) -> GateDecision:
    """What the gate would say; nothing is written down."""
    version, pointer = run.build_made.version, run.incumbent_pointer
    candidate = Candidate(version.content_hash, version, run.verdict)
    incumbent = Incumbent(pointer, run.incumbent) if pointer and run.incumbent else None
    now = datetime.fromisoformat(run.clock.utc())
    return gate(deployment.gate, deployment.margins, candidate, incumbent, now)


@library_task("confirm table", timeout_s=60)
def confirm_table(deployment: Deployment, run: StagedRun) -> None:
    """Note that the table in force is right as of now, so that its age starts anew."""
    pointer = run.incumbent_pointer
    if pointer is not None:
        identity, now = run.target.fingerprint.identity, datetime.fromisoformat(run.clock.utc())
        confirm(pathlib.Path(deployment.out), pointer.table_version, identity, now)


@library_task("tell drift", timeout_s=60)
def tell_drift(deployment: Deployment, what: str) -> None:
    """Send the event that starts a retune of this deployment."""
    emit_event(
        event=DRIFT_DETECTED,
        resource={
            "prefect.resource.id": f"tabletune.deployment.{deployment.name}",
            "tabletune.deployment": deployment.name,
            "tabletune.gpu": deployment.gpu.lower(),
        },
        payload={"what": what},
    )


@library_task("roll back", timeout_s=300)
def roll_back(store: Store, channel: str, who: str, reason: str, to: str | None) -> Move:
    """Put an earlier version in force again."""
    signer = signer_from(os.environ)
    return rollback(store, channel, SystemClock().utc(), who, reason, to=to, signer=signer)
