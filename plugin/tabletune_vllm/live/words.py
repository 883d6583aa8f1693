"""What the follower's answers look like to the loop, and small things that several files need."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tabletune.core.controller.promoted import Promoted

MODES = ("off", "shadow", "follow", "adapt")


class FollowerLike(Protocol):
    """What the loop needs of a source's follower (tabletune_vllm/source)."""

    @property
    def mode(self) -> str: ...
    def poll(self, now_s: float) -> object: ...
    def due(self, now_s: float) -> bool: ...
    def status(self) -> Mapping[str, object]: ...
    def tell(self, name: str, data: bytes) -> str | None: ...


@dataclass(frozen=True)
class Target:
    """A table version as the loop needs it.

    table: dense, entry 0 unused. lengths: all that this version may use on this engine.
    promoted: what the controller needs; None where the profile or the prior is not there,
    and then the table is followed but neither watched nor adapted. notes: what was odd.
    """

    version: str
    fingerprint: str
    table: tuple[int, ...]
    lengths: frozenset[int]
    forbidden: frozenset[tuple[int, int]]
    envelope: Callable[[int, int], bool]
    promoted: Promoted | None
    notes: tuple[str, ...] = ()
    from_cache: bool = False


@dataclass(frozen=True)
class Times:
    """One moment on the engine's clock (seconds, never back) and on the wall's."""

    now_s: float
    unix_s: float
