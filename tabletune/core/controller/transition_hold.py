"""Forbidden transitions, held at every single step."""

from __future__ import annotations

from collections.abc import Callable, Collection


class TransitionHold:
    """forbidden: pairs of lengths that must not follow each other, in either order.
    envelope: (batch size, draft length) -> whether it may be used."""

    def __init__(
        self, forbidden: Collection[tuple[int, int]], envelope: Callable[[int, int], bool]
    ) -> None:
        self._forbidden = frozenset(pair for a, b in forbidden for pair in ((a, b), (b, a)))
        self._envelope = envelope

    def held(self, last: int, wanted: int, batch_size: int) -> int:
        """The length to use: `wanted`, unless it must not follow `last`; then `last`, where
        the envelope allows it, else `wanted`: an uncovered step is worse than a switch.

        >>> TransitionHold([(2, 1)], lambda b, k: True).held(2, 1, 8)
        2
        """
        if (last, wanted) not in self._forbidden:
            return wanted
        return last if self._envelope(batch_size, last) else wanted
