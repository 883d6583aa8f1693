"""The table that an engine boots with so that it can follow other tables later.

vLLM captures graphs only for the draft lengths in the dense lookup of its boot table
(v1/worker/gpu/cudagraph_utils.py, spec_decode/target_dependent_ar/cudagraph_utils.py and
config/vllm.py, `_set_cudagraph_sizes`). A length that the table in force does not use, but a
later one may, is therefore named for one batch size, where that costs least.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tabletune.core.errors import CoreError
from tabletune.core.goodput import predicted_goodput_tok_s
from tabletune.core.goodput_map import ExpectedTokens, tokens_function
from tabletune.core.surface import StepTimes

Loss = Callable[[int, int], float | None]
"""(batch size, draft length) -> share of goodput lost there; None: not allowed there."""

_MAX_TRIALS = 20_000  # placements tried; far fewer are needed where few transitions are forbidden


@dataclass(frozen=True)
class Placement:
    """Batch size `batch_size` alone uses `draft_length`; `loss` is the share of goodput lost."""

    batch_size: int
    draft_length: int
    loss: float


@dataclass(frozen=True)
class BootLengths:
    """lengths: draft length by batch size, [b-1]. placements: what differs from the table that
    was to be extended, by batch size. left_out: wanted lengths that fit nowhere, ascending."""

    lengths: tuple[int, ...]
    placements: tuple[Placement, ...]
    left_out: tuple[int, ...]


def name_all_lengths(
    lengths: Sequence[int],
    wanted: Collection[int],
    loss: Loss,
    forbidden_transitions: Collection[tuple[int, int]] = (),
) -> BootLengths:
    """Extend a table so that it names every wanted length.

    lengths: the table, [b-1]. Each missing length gets one batch size of its own; the sum of the
    losses is the least. No length of the table disappears, and no two neighbours are a forbidden
    transition (in either order). A length that fits nowhere is left out.

    >>> name_all_lengths([3, 3, 0, 0], {0, 1, 3}, lambda b, k: abs(b - 3) / 10).lengths
    (3, 3, 1, 0)
    """
    if not lengths:
        raise CoreError("lengths", "a draft length per batch size", lengths, "pass a dense table")
    table = list(lengths)
    search = _Search(table, {frozenset(pair) for pair in forbidden_transitions})
    left_out: list[int] = []
    options: list[list[Placement]] = []
    for length in sorted(set(wanted) - set(table)):
        found = [
            Placement(b, length, share)
            for b in range(1, len(table) + 1)
            if (share := loss(b, length)) is not None and search.fits(b, length)
        ]
        if found:
            options.append(sorted(found, key=lambda p: (p.loss, p.batch_size)))
        else:
            left_out.append(length)
    options.sort(key=lambda found: (len(found), found[0].draft_length))
    best = search.best(options)
    while best is None:  # they are in each other's way: the one with the fewest places gives way
        left_out.append(options.pop(0)[0].draft_length)
        best = search.best(options)
    for placement in best:
        table[placement.batch_size - 1] = placement.draft_length
    return BootLengths(
        tuple(table),
        tuple(sorted(best, key=lambda placement: placement.batch_size)),
        tuple(sorted(left_out)),
    )


def predicted_losses(
    lengths: Sequence[int], surface: StepTimes, expected_tokens: ExpectedTokens
) -> Loss:
    """The share of predicted goodput lost by another length than the table's, never below 0.

    lengths: the table, [b-1]. Where the goodput of either length cannot be predicted: 1.
    """
    tokens_at, longest = tokens_function(expected_tokens)

    def goodput_tok_s(b: int, k: int) -> float | None:
        if not surface.covered(b, k) or (longest is not None and k > longest):
            return None
        return predicted_goodput_tok_s(b, tokens_at(b, k), surface.step_time_s(b, k))

    def loss(b: int, k: int) -> float:
        own, other = goodput_tok_s(b, lengths[b - 1]), goodput_tok_s(b, k)
        return 1.0 if own is None or other is None else max(0.0, 1.0 - other / own)

    return loss


class _Search:
    """Depth first over the missing lengths, cheapest places first, cut where it cannot win."""

    def __init__(self, table: list[int], forbidden: set[frozenset[int]]) -> None:
        self._table, self._forbidden = table, forbidden
        self._best: list[Placement] | None = None
        self._trials = 0

    def fits(self, batch_size: int, draft_length: int) -> bool:
        """Whether the table stays sound with `draft_length` at `batch_size` alone."""
        index = batch_size - 1
        before = self._table[index]
        if self._table.count(before) == 1:
            return False
        self._table[index] = draft_length
        around = self._table[max(0, index - 1) : index + 2]
        sound = all(frozenset(pair) not in self._forbidden for pair in pairwise(around))
        self._table[index] = before
        return sound

    def best(self, options: list[list[Placement]]) -> list[Placement] | None:
        """One placement per entry of `options` with the least summed loss; None without any."""
        self._best, self._trials = None, 0
        least = [found[0].loss for found in options]
        rest = [sum(least[i:]) for i in range(len(options) + 1)]
        self._place(options, rest, [])
        return self._best

    def _place(
        self, options: list[list[Placement]], rest: list[float], chosen: list[Placement]
    ) -> None:
        if len(chosen) == len(options):
            self._best = chosen
            return
        for placement in options[len(chosen)]:
            floor = _cost(chosen) + placement.loss + rest[len(chosen) + 1]
            if self._best is not None and (
                floor >= _cost(self._best) or self._trials >= _MAX_TRIALS
            ):
                return
            self._trials += 1
            taken = any(other.batch_size == placement.batch_size for other in chosen)
            if taken or not self.fits(placement.batch_size, placement.draft_length):
                continue
            index = placement.batch_size - 1
            before = self._table[index]
            self._table[index] = placement.draft_length
            self._place(options, rest, [*chosen, placement])
            self._table[index] = before


def _cost(placements: list[Placement]) -> float:
    return sum(placement.loss for placement in placements)
