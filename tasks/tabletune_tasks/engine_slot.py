"""One GPU, one job: a limit on the Prefect server, and a lock on this host.

The server's limit makes runs queue where people see them. The host's lock is what really
guards, since it also holds against runs of another server, and is let go by the kernel when a
process dies. So a server that is away for a while ends no measurement. Once both are held,
engines that a dead run left behind are stopped.
"""

import contextlib
import hashlib
import socket
from collections.abc import Iterator

from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency

from tabletune.maintain.gpu_lock import gpu_lock
from tabletune.maintain.reaper import marked_run, reap
from tabletune.pipeline.identify import Target
from tabletune_tasks.run_progress import run_logger

#: Seconds after which the slot of a run that was killed is free again.
LEASE_S = 60.0
#: The longest that a run queues for a device.
QUEUE_S = 12 * 3600.0


def slot_names(target: Target) -> tuple[str, ...]:
    """The limits' names: one a GPU, or one for this host where the engine computes on its CPU."""
    if target.gpu_uuids:
        return tuple(f"gpu-{uuid.lower()}" for uuid in sorted(target.gpu_uuids))
    return (f"cpu-{hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]}",)


@contextlib.contextmanager
def engine_slot(target: Target, what: str, queue_s: float = QUEUE_S) -> Iterator[None]:
    """Hold every device of `target` alone, `what` being said to whoever waits for it.

    Raises:
        TimeoutError: not free on this server within `queue_s`.
        GpuBusy: held on this host by a run without a slot on this server.
    """
    names = slot_names(target)
    with get_client(sync_client=True) as client:
        for name in names:
            client.upsert_global_concurrency_limit_by_name(name, 1)
    slots = concurrency(
        list(names),
        occupy=1,
        timeout_seconds=queue_s,
        lease_duration=LEASE_S,
        strict=True,
        raise_on_lease_renewal_failure=False,
    )
    with _given_back(slots), gpu_lock(target.gpu_uuids, what, wait_s=queue_s):
        found = reap()
        for run in found.runs:
            run_logger().warning("stopped %d processes of %s", len(found.stopped), run)
        with marked_run(what):
            yield


@contextlib.contextmanager
def _given_back(slots: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """Hold the slots. A server that cannot take them back lets their lease run out."""
    slots.__enter__()
    try:
        yield
    finally:
        try:
            slots.__exit__(None, None, None)
        except Exception as error:  # of many kinds: no answer, a refusal, a lease it forgot
            run_logger().warning("the slot is free again within %.0f s: %s", LEASE_S, error)
