"""Serves through every outage of the Prefect server.

Prefect's own serving process (3.9) ends after three polls in a row that failed: with the five
tries that its client makes of each, some four minutes after the server went away, and with it
the runs that it started. Its loops are given patience here: a poll that fails is told and tried
again, for ever. A server that comes back without its database is told of our flows again.
"""

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_logger
from prefect.runner import Runner

from tabletune.maintain.outage import Every, Outage
from tabletune.measure.clock import SystemClock
from tabletune_flows.serving import install_automations

#: Where Prefect looks for its loop that gives up: for scheduled runs, and for cancelled ones.
POLLING = "prefect.runner._scheduled_run_poller"
CANCELLING = "prefect._internal._observation_delivery"
LOOP = "critical_service_loop"
#: How often it is seen whether the server still knows our deployments.
KNOWN_EVERY_S = 300.0
#: How long the end of this process waits for a server that is away.
PAUSE_S = 10.0

logger = get_logger("serve")


class PatientRunner(Runner):
    """Prefect's runner for deployments that are made again where the server lost them."""

    def __init__(self, made: list[RunnerDeployment], limit: int, outage: Outage) -> None:
        super().__init__(limit=limit)
        self._made, self._outage = made, outage
        self._ids: list[UUID] = []
        self._look = Every(KNOWN_EVERY_S, SystemClock())

    async def start(self, run_once: bool = False, webserver: bool | None = None) -> None:
        """Register everything, then serve until stopped."""
        self._ids = [await self.aadd_deployment(one) for one in self._made]
        names = ", ".join(f"{one.flow_name}/{one.name}" for one in self._made)
        logger.info("serving, at most %s runs at a time: %s", self.limit, names)
        await super().start(run_once, webserver)

    async def polled(self) -> None:
        """After each poll that went well."""
        if self._outage.ended() or self._look.due():
            await self._made_again()

    async def _made_again(self) -> None:
        """Register everything again where nothing of it is there; a single one was removed by
        somebody, and stays so."""
        wanted = DeploymentFilter(id=DeploymentFilterId(any_=self._ids))
        async with get_client() as client:
            if await client.read_deployments(deployment_filter=wanted, limit=1):
                return
        logger.warning("the Prefect server does not know our flows any more: told again")
        await asyncio.to_thread(install_automations)
        self._ids = [await self.aadd_deployment(one) for one in self._made]

    async def _pause_schedules(self) -> None:
        """So that nothing piles up while nobody serves; a server that is away is not waited for."""
        try:
            async with asyncio.timeout(PAUSE_S), get_client() as client:
                for one in self._ids:
                    with contextlib.suppress(ObjectNotFound):
                        await client.pause_deployment(one)
        except (httpx.HTTPError, OSError) as error:  # TimeoutError is an OSError
            logger.warning("schedules were not paused (%s: %s)", type(error).__name__, error)


def serve_patiently(made: list[RunnerDeployment], limit: int, outage: Outage) -> None:
    """Serve until this process is interrupted.

    Raises:
        Exception: the flows cannot be registered, or Prefect's runner failed.
    """
    runner = PatientRunner(made, limit, outage)
    with (
        patient_loop(POLLING, outage.failed, runner.polled),
        patient_loop(CANCELLING, _quiet, _nothing),
    ):
        asyncio.run(runner.start())


@contextlib.contextmanager
def patient_loop(
    module: str, failed: Callable[[Exception], None], worked: Callable[[], Awaitable[None]]
) -> Iterator[None]:
    """Meanwhile no failure of the server reaches the loop of that module, which would end."""
    place = importlib.import_module(module)
    loop = getattr(place, LOOP, None)
    if loop is None:
        # Another release than those that we ask for: then serving begins anew after minutes.
        logger.warning("%s has no %s: Prefect's own patience with its server holds", module, LOOP)
        yield
        return

    async def patient(workload: Callable[[], Awaitable[None]], **how: Any) -> None:
        async def once() -> None:
            try:
                await workload()
                await worked()
            except Exception as error:  # whatever it is, who serves is needed tomorrow too
                logger.debug("a poll failed", exc_info=error)
                failed(error)

        await loop(workload=once, **how)

    setattr(place, LOOP, patient)
    try:
        yield
    finally:
        setattr(place, LOOP, loop)


def _quiet(error: Exception) -> None:
    logger.debug("cancelled runs cannot be asked for (%s)", error)


async def _nothing() -> None:
    return
