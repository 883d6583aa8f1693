"""The canary's part of a retune: try first, look now and then, go live or back."""

import time

from tabletune.maintain.canary_channel import Pending
from tabletune.maintain.decisions import Decided
from tabletune.maintain.deployments import Deployment
from tabletune.store.base import Store
from tabletune.store.opening import open_store
from tabletune_flows.outcomes import Outcome
from tabletune_tasks import canaries
from tabletune_tasks.run_progress import run_logger

#: The outcome, in a few words, and the reasons.
Ending = tuple[Outcome, str, tuple[str, ...]]


def tried(deployment: Deployment, store: Store, decided: Decided, who: str) -> Ending | None:
    """Try the candidate on the canary channel, if the policy wants that; how it ended."""
    if not canaries.needs_canary(deployment, store):
        return None
    return _watched(deployment, store, canaries.begin(deployment, store, decided, who), who)


def waiting(deployment: Deployment, who: str) -> None:
    """Finish the canary that an earlier run left behind, if there is one."""
    store = open_store(deployment.store)
    pending = canaries.waiting_canary(deployment, store)
    if pending is not None:
        run_logger().info("a canary of an earlier run is still waiting")
        _watched(deployment, store, pending, who)


def _watched(deployment: Deployment, store: Store, pending: Pending, who: str) -> Ending:
    trial = canaries.observe(deployment, pending)
    judgement = canaries.look_at(deployment, trial)
    while judgement.outcome == "go on":
        run_logger().info("canary: %s", "; ".join(judgement.reasons))
        time.sleep(canaries.pause_s(deployment))
        trial = canaries.renew(deployment, trial)
        judgement = canaries.look_at(deployment, trial)
    move = canaries.end(deployment, store, trial, judgement, who)
    outcome: Outcome = "Promoted" if judgement.outcome == "promote" else "Sent back"
    headline = f"canary tried, {move.pointer.channel} is at move {move.pointer.sequence}"
    return outcome, headline, judgement.reasons
