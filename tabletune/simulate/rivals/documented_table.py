"""The tables printed in vLLM's documentation (docs/features/speculative_decoding,
dynamic_speculative_decoding.md), as somebody would copy them."""

from __future__ import annotations

from typing import Literal

from tabletune.simulate.policy import TablePolicy

DOCUMENTED_ROWS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "eagle": ((1, 64, 3), (65, 128, 1), (129, 512, 0)),
    "eagle3": ((1, 16, 5), (17, 32, 4), (33, 64, 3), (65, 128, 1), (129, 512, 0)),
}


def documented_table(drafter: Literal["eagle", "eagle3"], longest: int) -> TablePolicy:
    """vLLM's documented table; lengths above `longest` become it, as vLLM clamps them.

    >>> documented_table("eagle3", 4).draft_lengths[0]
    4
    """
    rows = [(first, last, min(k, longest)) for first, last, k in DOCUMENTED_ROWS[drafter]]
    return TablePolicy.from_rows(rows)
