"""Which flows are served, when they start by themselves, and what watches over their runs."""

import pathlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, get_args

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import (
    ConcurrencyLimitConfig,
    ConcurrencyLimitStrategy,
    StateType,
)
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentEventTrigger, EventTrigger
from prefect.events.actions import CancelFlowRun, ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, Posture
from prefect.schedules import Cron, Schedule
from prefect.types.entrypoint import EntrypointType

from tabletune.maintain.deployments import Deployment
from tabletune_flows.compare import compare
from tabletune_flows.harvest import harvest
from tabletune_flows.outcomes import Outcome
from tabletune_flows.prune import prune
from tabletune_flows.retune import retune
from tabletune_flows.revalidate import revalidate
from tabletune_flows.rollback import rollback
from tabletune_flows.upgrade import upgrade
from tabletune_flows.watch import watch
from tabletune_tasks.names import DRIFT_DETECTED, ENGINE_CHANGED

#: A run whose process sends no sign of life for so long is gone. They come every three minutes
#: unless set otherwise; slow exits must not count as death, and the device is free long before.
SILENT_S = 600.0
#: A scheduled run that no worker took for so long is cancelled; the next one does its work.
LATE_S = 3600.0

#: Marks our runs, so that other flows of the same server are left alone.
TAG = "tabletune"
OURS: dict[str, Any] = {
    "prefect.resource.role": "tag",
    "prefect.resource.id": f"prefect.tag.{TAG}",
}

#: The flows that need the device of one deployment, and those that need none.
ON_DEVICE: tuple[Any, ...] = (retune, upgrade, revalidate)
ANYWHERE: tuple[Any, ...] = (rollback, compare, harvest)
EVERY: tuple[Any, ...] = (watch, *ON_DEVICE, *ANYWHERE, prune)
#: When stores are looked through for what nobody needs any more.
WEEKLY, WEEKLY_ZONE = "0 12 * * 0", "UTC"


def served(deployments: Iterable[Deployment], config: pathlib.Path) -> list[RunnerDeployment]:
    """Prefect's deployments: the flows on a device once for each kind of GPU, the others once.

    Watching has one schedule for each that the deployments have.
    """
    known = tuple(deployments)
    kinds = sorted({one.gpu.lower() for one in known})
    parameters = {"config": str(config.absolute())}
    made = [_on_device(flow, kind, parameters) for kind in kinds for flow in ON_DEVICE]
    made += [_deployed(flow, "any", parameters) for flow in ANYWHERE]
    times = sorted({(one.schedule.cron, one.schedule.timezone) for one in known})
    schedules = [_schedule(cron, timezone, parameters) for cron, timezone in times]
    started = [_when(ENGINE_CHANGED, {})]
    weekly = Cron(WEEKLY, timezone=WEEKLY_ZONE, slug=_slug(WEEKLY, WEEKLY_ZONE))
    return [
        *made,
        _deployed(prune, "any", parameters, schedules=[weekly]),
        _deployed(
            watch,
            "any",
            parameters,
            schedules=schedules,
            triggers=started,
            concurrency_limit=_one_at_a_time(),
        ),
    ]


def automations() -> list[AutomationCore]:
    """What ends runs that nobody else ends."""
    return [
        AutomationCore(
            name="tabletune: runs whose process is gone",
            trigger=EventTrigger(
                after={"prefect.flow-run.heartbeat"},
                expect={"prefect.flow-run.heartbeat", *_ended()},
                match={"prefect.resource.id": "prefect.flow-run.*"},
                match_related=OURS,
                for_each={"prefect.resource.id"},
                posture=Posture.Proactive,
                threshold=1,
                within=timedelta(seconds=SILENT_S),
            ),
            actions=[
                ChangeFlowRunState(
                    name="Crashed",
                    state=StateType.CRASHED,
                    message="no sign of life; its slots become free",
                    force=False,
                )
            ],
        ),
        AutomationCore(
            name="tabletune: runs that are too late",
            trigger=EventTrigger(
                after={"prefect.flow-run.Late"},
                expect={"prefect.flow-run.Pending", "prefect.flow-run.Running", *_ended()},
                match={"prefect.resource.id": "prefect.flow-run.*"},
                match_related=OURS,
                for_each={"prefect.resource.id"},
                posture=Posture.Proactive,
                threshold=1,
                within=timedelta(seconds=LATE_S),
            ),
            actions=[CancelFlowRun()],
        ),
    ]


def install_automations() -> None:
    """Create ours, or replace what an earlier version created."""
    with get_client(sync_client=True) as client:
        for automation in automations():
            found = client.read_automations_by_name(automation.name)
            if found:
                client.update_automation(found[0].id, automation)
            else:
                client.create_automation(automation)


def _on_device(flow: Any, kind: str, parameters: dict[str, str]) -> RunnerDeployment:
    # No limit here: a kind may have many GPUs, and each is held by one run (engine_slot).
    asked = {"deployment": "{{ event.resource['tabletune.deployment'] }}", "fresh": True}
    drifted = _when(DRIFT_DETECTED, {"tabletune.gpu": kind}, parameters | asked)
    return _deployed(flow, kind, parameters, triggers=[drifted] if flow is retune else [])


def _deployed(flow: Any, name: str, parameters: dict[str, str], **more: Any) -> RunnerDeployment:
    """By module, so that any process that has this installation can run it."""
    module = EntrypointType.MODULE_PATH
    return flow.to_deployment(
        name, parameters=parameters, entrypoint_type=module, tags=[TAG], **more
    )


def _when(
    event: str, match: dict[str, Any], parameters: dict[str, Any] | None = None
) -> DeploymentEventTrigger:
    return DeploymentEventTrigger(
        name=f"on {event}", expect={event}, match=match, parameters=parameters
    )


def _one_at_a_time() -> ConcurrencyLimitConfig:
    # CANCEL_NEW was seen to cancel the earlier of two runs; queued ones find nothing to do.
    return ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)


def _schedule(cron: str, timezone: str, parameters: dict[str, str]) -> Schedule:
    chosen = parameters | {"cron": cron, "timezone": timezone}
    return Cron(cron, timezone=timezone, parameters=chosen, slug=_slug(cron, timezone))


def _slug(cron: str, timezone: str) -> str:
    signs = {"*": "x", "/": "-each-", ",": "-and-", " ": "-"}
    text = f"{cron} {timezone}".lower()
    return "".join(signs.get(sign, sign if sign.isalnum() else "-") for sign in text)


def _ended() -> set[str]:
    """The events of runs that ended. They are called like the state's name, not its type: without
    our own names the first automation would turn what ended well into a crash."""
    usual = ("Completed", "Failed", "Cancelled", "Crashed", "TimedOut", "Cached", "RolledBack")
    return {f"prefect.flow-run.{name}" for name in (*usual, *get_args(Outcome))}
