"""Which batch sizes to measure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise

from tabletune.core.errors import CoreError
from tabletune.core.goodput import predicted_goodput_tok_s
from tabletune.core.goodput_map import ExpectedTokens, tokens_function
from tabletune.core.surface import PaddedTokens, StepTimes

_MIDPOINTS_FROM = 16
_RIVAL = 0.15  # lengths that lose at most this much to the best one may become it
_JUMP = 0.10  # step time above the line of its neighbours, as a share, that is worth a look
_CLOSE = 0.05  # grid points closer than this share of themselves need nothing between them
_TALL_TOKENS = 8  # stairs lower than this many tokens are not worth two measurements


def initial_grid(max_batch_size: int) -> list[int]:
    """Powers of two, the points halfway between them from 16 on, and the maximum.

    >>> initial_grid(100)
    [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 100]
    """
    if max_batch_size < 1:
        raise CoreError("max_batch_size", "at least 1", max_batch_size, "pass max_num_seqs")
    grid = {max_batch_size}
    power = 1
    while power <= max_batch_size:
        grid.add(power)
        middle = power + power // 2
        if power >= _MIDPOINTS_FROM and middle <= max_batch_size:
            grid.add(middle)
        power *= 2
    return sorted(grid)


def graph_boundaries(
    padded_tokens: PaddedTokens,
    lengths: Collection[int],
    max_batch_size: int,
    max_points: int = 16,
) -> list[int]:
    """Batch sizes on both sides of the tallest stairs in padded tokens, ascending.

    A stair is where one more request pads to more than twice the tokens it brings, and to at
    least 8 more. The tallest come first until `max_points` batch sizes are named; stairs
    that lead to or from a cell without a graph have no second side to measure.

    >>> graph_boundaries(lambda b, k: 64 if b * (k + 1) <= 64 else 128, [0, 1], 128)
    [32, 33, 64, 65]
    """
    stairs: dict[int, int] = {}
    for k in lengths:
        for b in range(1, max_batch_size):
            below, above = padded_tokens(b, k), padded_tokens(b + 1, k)
            if below is None or above is None:
                continue
            height = above - below
            if height > 2 * (k + 1) and height >= _TALL_TOKENS:
                stairs[b] = max(height, stairs.get(b, 0))
    chosen: set[int] = set()
    for b in sorted(stairs, key=lambda b: (-stairs[b], b)):
        wanted = chosen | {b, b + 1}
        if len(wanted) <= max_points:
            chosen = wanted
    return sorted(chosen)


def refine(
    surface: StepTimes,
    expected_tokens: ExpectedTokens,
    grid: Collection[int],
    padded_tokens: PaddedTokens | None = None,
    max_points: int = 8,
) -> list[int]:
    """New batch sizes to measure, ascending, at most `max_points`, the most telling ones.

    Between two neighbouring grid points: the batch size where the better length is predicted
    to change, weighed with what choosing wrongly would cost; and, where the step time of a
    length that may win rises by more than the line through the points before says, the stair
    in padded tokens (both sides), or the middle where there are no stairs.
    """
    tokens_at, _longest = tokens_function(expected_tokens)

    def goodput(b: int) -> dict[int, float]:
        return {
            k: predicted_goodput_tok_s(b, tokens_at(b, k), surface.step_time_s(b, k))
            for k in surface.draft_lengths
            if (_longest is None or k <= _longest) and surface.covered(b, k)
        }

    points = sorted(set(grid))
    worth: dict[int, float] = {}
    for index, (low, high) in enumerate(pairwise(points)):
        if high - low < 2 or high - low <= _CLOSE * high:
            continue
        width = (high - low) / high
        at_low, at_high = goodput(low), goodput(high)
        if not at_low or not at_high:
            continue
        before = points[index - 1] if index else None
        for b, gain in (
            *_crossing(goodput, low, high, at_low, at_high),
            *_jumps(surface, padded_tokens, before, low, high, _rivals(at_low, at_high)),
        ):
            worth[b] = max(worth.get(b, 0.0), gain * width)
    new = [b for b in worth if b not in points and goodput(b)]
    best = sorted(new, key=lambda b: (-worth[b], b))
    return sorted(best[:max_points])


def _rivals(*ends: Mapping[int, float]) -> set[int]:
    return {k for end in ends for k in end if end[k] >= (1 - _RIVAL) * max(end.values())}


def _crossing(
    goodput: Callable[[int], dict[int, float]],
    low: int,
    high: int,
    at_low: Mapping[int, float],
    at_high: Mapping[int, float],
) -> Iterator[tuple[int, float]]:
    """Where the best length of the upper end overtakes that of the lower, and the stake."""
    first = max(at_low, key=lambda k: at_low[k])
    second = max(at_high, key=lambda k: at_high[k])
    if first == second:
        return
    stake = (
        2.0 - at_low.get(second, 0.0) / at_low[first] - at_high.get(first, 0.0) / at_high[second]
    )
    for b in range(low + 1, high):
        here = goodput(b)
        if here.get(second, 0.0) > here.get(first, 0.0):
            yield b, stake
            return
    yield high - 1, stake


def _jumps(
    surface: StepTimes,
    padded_tokens: PaddedTokens | None,
    before: int | None,
    low: int,
    high: int,
    lengths: Collection[int],
) -> Iterator[tuple[int, float]]:
    """Where the step time rises by more than the line through `before` and `low` says."""
    for k in sorted(lengths):
        if not (surface.covered(low, k) and surface.covered(high, k)):
            continue
        slope = 0.0
        if before is not None and surface.covered(before, k):
            rise = surface.step_time_s(low, k) - surface.step_time_s(before, k)
            slope = max(rise / (low - before), 0.0)
        expected = surface.step_time_s(low, k) + slope * (high - low)
        excess = surface.step_time_s(high, k) / expected - 1.0
        if excess > _JUMP:
            for b in _tallest_stair(padded_tokens, low, high, k):
                yield b, excess


def _tallest_stair(
    padded_tokens: PaddedTokens | None, low: int, high: int, k: int
) -> tuple[int, ...]:
    middle = ((low + high) // 2,)
    if padded_tokens is None:
        return middle
    heights: dict[int, int] = {}
    for b in range(low, high):
        below, above = padded_tokens(b, k), padded_tokens(b + 1, k)
        if below is not None and above is not None:
            heights[b] = above - below
    if not heights or max(heights.values()) <= 2 * (k + 1):
        return middle
    edge = max(heights, key=lambda b: heights[b])
    return (edge, edge + 1)
