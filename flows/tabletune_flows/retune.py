"""retune: measure, build, validate, and promote what the gate lets through."""

import pathlib
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from tabletune.maintain.decisions import Approval, Decided
from tabletune.maintain.deployments import Deployment
from tabletune.pipeline.run_summary import run_markdown
from tabletune.pipeline.staged_run import StagedRun
from tabletune_flows.approval import asked
from tabletune_flows.canary import tried, waiting
from tabletune_flows.measuring import identified, kept, measured, mirrored, told
from tabletune_flows.outcomes import Outcome, ended
from tabletune_flows.settings import deployments_path, outbox_path
from tabletune_tasks import fleet, prepare, promotion, publish, track

#: How long a person has to answer.
ANSWER_S = 24 * 3600


@flow(name="retune", flow_run_name="retune-{deployment}", persist_result=False)
def retune(
    deployment: str,
    config: pathlib.Path | None = None,
    engine: str | None = None,
    fresh: bool = False,
    answer_s: int = ANSWER_S,
) -> Any:
    """Tune one deployment's table again.

    Does nothing when the table in force was made for exactly today's engine, device and
    models. A canary that an earlier run left waiting is judged first.

    Args:
        deployment: its name in the deployments file.
        config: the deployments file; by default the one that TABLETUNE_DEPLOYMENTS names.
        engine: an engine environment's name or path, in place of the deployment's own.
        fresh: measure again what is still valid, although nothing changed.
        answer_s: seconds that a person has to approve where the gate asks for it.
    """
    wanted = prepare.read_deployment(config or deployments_path(), deployment)
    waiting(wanted, _who())
    if fresh and wanted.drift.use_harvest:
        # Sample prompts do not drift: what live traffic has become is in the snapshots only.
        fleet.harvest_fleet(wanted, prepare.store_of(wanted))
    run = identified(wanted, engine, fresh)
    if not fresh and run.in_force():
        track.send_waiting(outbox_path(wanted.out))
        mirrored(wanted, run)
        return ended("Unchanged", f"{deployment}: nothing changed, nothing was measured")
    measured(wanted, run)
    decided = promotion.pass_gate(wanted, run, _who())
    if decided.outcome == "ask":
        decided = _answered(wanted, run, decided, answer_s)
    return _finished(wanted, run, decided)


def _finished(deployment: Deployment, run: StagedRun, decided: Decided) -> Any:
    reasons = decided.decision.reasons
    if not decided.allowed:
        name: Outcome = "Unchanged" if decided.outcome == "nothing_to_do" else "Refused"
        told(deployment, run, "not promoted", reasons)
        message = f"{deployment.name}: not promoted"
        return ended(name, message, reasons, version=decided.version, decision=decided.name)
    report = kept(deployment, run)
    trial = tried(deployment, run.store, decided, _who())
    if trial is None:
        move = promotion.promote(deployment, run.store, decided, _who())
        # Another run may have been first with the very same table.
        name = "Promoted" if move.moved else "Unchanged"
        done = "promoted to" if move.moved else "in force already on"
        headline = f"{done} {move.pointer.channel} as move {move.pointer.sequence}"
    else:
        name, headline, reasons = trial
    told(deployment, run, headline, reasons, report)
    message = f"{deployment.name}: {headline}"
    return ended(name, message, reasons, version=decided.version, decision=decided.name)


def _answered(deployment: Deployment, run: StagedRun, decided: Decided, answer_s: int) -> Decided:
    """The decision after a person has answered."""
    reasons = decided.decision.reasons
    text = run_markdown(deployment.name, run, "waits for approval", reasons)
    publish.publish_text(f"{deployment.name}-question", text)
    answer = asked(text, answer_s)
    approval = Approval(answer.who or "unnamed", answer.approve, answer.reason, decided.name)
    return promotion.pass_gate(deployment, run, _who(), approval)


def _who() -> str:
    return f"flow {flow_run.name}"
