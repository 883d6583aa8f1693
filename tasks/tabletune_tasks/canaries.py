"""Tasks that try a candidate on the canary channel first."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tabletune.maintain.canary import (
    CanaryJudgement,
    EngineWindow,
    engine_window,
    judge,
    renewed,
)
from tabletune.maintain.canary_channel import (
    Pending,
    begin_canary,
    end_canary,
    pending_canary,
    wants_canary,
)
from tabletune.maintain.decisions import Decided
from tabletune.maintain.deployments import Deployment
from tabletune.measure.clock import Clock, SystemClock
from tabletune.records.snapshot import LiveSnapshot
from tabletune.store.base import Store
from tabletune.store.open_snapshots import open_snapshots
from tabletune.store.promotion import Move
from tabletune.store.signing import signer_from
from tabletune.store.snapshots import read_all
from tabletune_tasks.calls import library_task

#: Looks at a canary while its shortest time lasts, and the seconds between two at most.
LOOKS, MOST_BETWEEN_S = 10, 60.0


@dataclass(frozen=True)
class Trial:
    """A canary, and what engines had done before it was looked at (by run id).

    `begun_s`: when that was, by this process's own clock. Neither the pointer's date nor this
    host's tells how long engines were observed: clocks of hosts differ, and a run that takes up
    an earlier one's canary has seen nothing of it yet.
    """

    pending: Pending
    begun_s: float
    before: dict[str, LiveSnapshot] = field(repr=False)

    def minutes(self, clock: Clock) -> float:
        """How long it has been looked at."""
        return (clock.now_s() - self.begun_s) / 60


@library_task("find canary", timeout_s=120)
def waiting_canary(deployment: Deployment, store: Store) -> Pending | None:
    """The candidate that an earlier run left on the canary channel."""
    return pending_canary(store, deployment)


@library_task("needs canary", timeout_s=120)
def needs_canary(deployment: Deployment, store: Store) -> bool:
    """Whether a candidate is tried first."""
    return wants_canary(store, deployment)


@library_task("begin canary", timeout_s=300)
def begin(deployment: Deployment, store: Store, decided: Decided, who: str) -> Pending:
    """Put the candidate on the canary channel."""
    return begin_canary(store, deployment, decided, SystemClock(), who, signer_from(os.environ))


@library_task("observe canary", timeout_s=300)
def observe(deployment: Deployment, pending: Pending) -> Trial:
    """What all engines have done until now, to compare with later."""
    found = [*_live(deployment), *_canaries(deployment)]
    return Trial(pending, SystemClock().now_s(), {one.engine.run_id: one for one in found})


@library_task("renew canary", timeout_s=300, retries=3)
def renew(deployment: Deployment, trial: Trial) -> Trial:
    """Begin an engine's part anew where it got another table since."""
    found = [*_live(deployment), *_canaries(deployment)]
    return replace(trial, before=renewed(trial.before, found))


@library_task("judge canary", timeout_s=300, retries=3)
def look_at(deployment: Deployment, trial: Trial) -> CanaryJudgement:
    """Compare the canary engines with the others, as of now."""
    return judge(
        deployment.canary,
        trial.pending.decided.version,
        _windows(_canaries(deployment), trial),
        _windows(_live(deployment), trial),
        trial.minutes(SystemClock()),
    )


@library_task("end canary", timeout_s=300)
def end(
    deployment: Deployment, store: Store, trial: Trial, judgement: CanaryJudgement, who: str
) -> Move:
    """To the live channel, or back."""
    signer = signer_from(os.environ)
    return end_canary(store, deployment, trial.pending, judgement, SystemClock(), who, signer)


def pause_s(deployment: Deployment) -> float:
    """Seconds until the next look."""
    return min(MOST_BETWEEN_S, deployment.canary.minutes * 60 / LOOKS)


def _live(deployment: Deployment) -> tuple[LiveSnapshot, ...]:
    return _all(deployment, deployment.channels.live)


def _canaries(deployment: Deployment) -> tuple[LiveSnapshot, ...]:
    channel = deployment.channels.canary
    return () if channel is None else _all(deployment, channel)


def _all(deployment: Deployment, channel: str) -> tuple[LiveSnapshot, ...]:
    return tuple(read_all(open_snapshots(deployment.store), channel).readable.values())


def _windows(snapshots: Iterable[LiveSnapshot], trial: Trial) -> list[EngineWindow]:
    return [engine_window(trial.before.get(one.engine.run_id), one) for one in snapshots]
