"""How every task of ours is declared: by name, with a limit, and without pickles.

Results are kept in memory: what matters is in the store and in the run's folder, named by hash.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE

Call = TypeVar("Call", bound=Callable[..., Any])


def library_task(
    name: str, *, timeout_s: float, retries: int = 0, retry_delay_s: float = 5.0
) -> Callable[[Call], Call]:
    """A task around one library call.

    Args:
        timeout_s: after which it fails; engines that it booted are stopped then.
        retries: only for calls that may be repeated without harm.
    """
    made: Any = task(
        name=name,
        cache_policy=NO_CACHE,
        persist_result=False,
        timeout_seconds=timeout_s,
        retries=retries,
        retry_delay_seconds=retry_delay_s,
        retry_jitter_factor=0.5 if retries else None,
    )
    return made
