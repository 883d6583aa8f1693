"""The draft-length table: for each batch size the length with the highest predicted goodput.

The rules are the paper's (arXiv 2610.38968): argmax of b·E(K)/T(b,K), near ties suppressed,
ranges narrower than 25 % of their first batch size merged. Added to it: a limit on the time
per output token, forbidden lengths and transitions, and an envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tabletune.core.errors import CoreError, NoTableError
from tabletune.core.goodput_map import BoolArray, ExpectedTokens, GoodputMap, goodput_map
from tabletune.core.segments import Segment, absorb_narrow, follow_argmax, to_path, to_segments
from tabletune.core.surface import StepTimes
from tabletune.core.transitions import breaks, cheapest_segments, forbidden_columns
from tabletune.core.words import FloatArray


@dataclass(frozen=True)
class TableRange:
    """Batch sizes first..last (both included) draft `draft_length` guesses.

    predicted_goodput_tok_s: mean over the range; .._first_.. and .._last_.. at its ends.
    """

    first: int
    last: int
    draft_length: int
    predicted_goodput_tok_s: float
    predicted_goodput_first_tok_s: float
    predicted_goodput_last_tok_s: float


@dataclass(frozen=True)
class BuildOptions:
    """near_tie: the length in use is kept while it loses at most this share of goodput.
    uncertainty: (batch size, draft length) -> share by which the goodput may be off; where it
        is larger than `near_tie` it takes its place, up to `max_tie`: a difference that was not
        seen for sure earns no edge. None: as in the paper, `near_tie` everywhere.
    narrow_share: ranges narrower than this share of their first batch size are merged.
    max_merge_loss: a narrow range is kept where merging it would lose more than this share of
        goodput at any of its batch sizes; None, as in the paper: merge at any price. The last
        range is often narrow only because the table ends there.
    noise: share by which the profile's cells scatter beside their own intervals. Not 0: the table
        is that of the least summed loss, where each edge has to earn this much (at most
        `max_noise`) over the batch sizes beyond it. One cell that is off makes no edge then, and
        many that agree do; near ties and merges play no part.
    max_tpot_s: highest mean time per output token, T(b,K)/E(K).
    allowed: the lengths that may be used; None: all that were measured.
    forbidden_transitions: (K, K') that must not be neighbours in the table, in either order.
    envelope: (batch size, draft length) -> whether the table may use it; None: everywhere.
    """

    near_tie: float = 0.01
    uncertainty: Callable[[int, int], float] | None = None
    max_tie: float = 0.02
    narrow_share: float = 0.25
    max_merge_loss: float | None = None
    noise: float = 0.0
    max_noise: float = 0.1
    max_tpot_s: float | None = None
    allowed: Collection[int] | None = None
    forbidden_transitions: Collection[tuple[int, int]] = ()
    envelope: Callable[[int, int], bool] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.near_tie < 1:
            raise CoreError("near_tie", "a share from 0 to below 1", self.near_tie, "0.01 is 1 %")
        if not 0 <= self.noise < np.inf:
            raise CoreError("noise", "a share from 0", self.noise, "0 is none")
        if not 0 <= self.narrow_share <= 1:
            raise CoreError(
                "narrow_share", "a share from 0 to 1", self.narrow_share, "0.25 is the paper's"
            )
        if self.max_merge_loss is not None and not self.max_merge_loss >= 0:
            raise CoreError("max_merge_loss", "a share >= 0", self.max_merge_loss, "0.02 is 2 %")
        if self.max_tpot_s is not None and not self.max_tpot_s > 0:
            raise CoreError("max_tpot_s", "seconds > 0", self.max_tpot_s, "None sets no limit")


@dataclass(frozen=True)
class Merge:
    """Batch sizes first..last changed from one length to a neighbour's: they were narrow.

    worst_loss: the largest share of predicted goodput that this costs there.
    """

    first: int
    last: int
    from_draft_length: int
    to_draft_length: int
    worst_loss: float


@dataclass(frozen=True)
class BuiltTable:
    """A table over batch sizes 1..max, without gap or overlap.

    merges: the narrow ranges merged. notes: what the reader of the table should know, in words.
    max_batch_size_within_tpot: up to this batch size the limit on the time per output token
    holds everywhere (0: nowhere); None without a limit.
    """

    ranges: tuple[TableRange, ...]
    merges: tuple[Merge, ...]
    notes: tuple[str, ...]
    max_batch_size_within_tpot: int | None = None

    @property
    def max_batch_size(self) -> int:
        return self.ranges[-1].last

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """The length of every batch size; [b-1] for batch size b."""
        return tuple(r.draft_length for r in self.ranges for _ in range(r.first, r.last + 1))

    def as_rows(self) -> list[tuple[int, int, int]]:
        """(first, last, draft length) per range, as in vLLM's table."""
        return [(r.first, r.last, r.draft_length) for r in self.ranges]


_DEFAULT = BuildOptions()


def build_table(
    surface: StepTimes,
    expected_tokens: ExpectedTokens,
    max_batch_size: int,
    options: BuildOptions = _DEFAULT,
) -> BuiltTable:
    """Build the table for batch sizes 1..max_batch_size.

    expected_tokens: E as float64[K+1], or a function (b, K) -> E(b, K). Where a limit on the
    time per output token cannot be met, the length with the lowest (to within near_tie) is
    used and a note says so. At one batch size the goodput is b over that time, so the limit
    never changes which length is best: it only keeps near ties and merges from breaking it,
    and tells up to which batch size it can be held.
    Raises NoTableError where a batch size has no usable length, or the forbidden transitions
    leave nothing.
    """
    plane = goodput_map(surface, expected_tokens, max_batch_size, options.allowed, options.envelope)
    notes = _unused_lengths(surface, plane)
    choosable, within, tpot_notes = _apply_tpot(plane, options.max_tpot_s)
    notes += tpot_notes
    loss = np.where(choosable, plane.loss(), np.inf)
    forbidden = forbidden_columns(plane.lengths, options.forbidden_transitions)
    edge_share = max(options.near_tie, min(options.noise, options.max_noise))
    segments, absorbed, kept = absorb_narrow(
        to_segments(follow_argmax(loss, _ties(plane, choosable, options))),
        loss,
        options.narrow_share,
        options.max_merge_loss,
    )
    if options.noise or breaks(segments, forbidden):
        solved = cheapest_segments(loss, forbidden, options.narrow_share, edge_share)
        if solved is None:
            raise NoTableError(
                "every way through the usable lengths crosses a forbidden transition",
                [s.first for s in segments[1:]][:5],
                f"allow one of {sorted(options.forbidden_transitions)} or more lengths",
            )
        segments, absorbed = solved, []
        kept = [s for s in segments if s.narrow(options.narrow_share)]
        worst = float(loss[np.arange(max_batch_size), to_path(segments)].max())
        if options.noise:
            notes.append(
                f"the profile's cells scatter by ±{options.noise:.0%}: a change of draft length "
                f"had to earn {edge_share:.0%}, and some batch size seems to lose {worst:.1%}"
            )
        else:
            notes.append(f"forbidden transitions changed the table; it loses at most {worst:.1%}")
    notes += [
        f"the range {s.first} to {s.last} is narrow, but could not or should not be merged"
        for s in kept
    ]
    lengths = plane.lengths
    merges = tuple(
        Merge(
            a.segment.first,
            a.segment.last,
            lengths[a.segment.column],
            lengths[a.column],
            a.worst_loss,
        )
        for a in absorbed
    )
    ranges = tuple(_range(plane, segment) for segment in segments)
    return BuiltTable(ranges, merges, tuple(notes), within)


def _ties(plane: GoodputMap, choosable: BoolArray, options: BuildOptions) -> float | FloatArray:
    """float64[B]: the share of goodput below which a difference counts as a tie."""
    if options.uncertainty is None:
        return options.near_tie
    ties = np.full(plane.max_batch_size, options.near_tie)
    best = np.where(choosable, plane.goodput_tok_s, 0.0).argmax(axis=1)
    for index in range(plane.max_batch_size):
        unsure = options.uncertainty(index + 1, plane.lengths[int(best[index])])
        ties[index] = max(options.near_tie, min(unsure, options.max_tie))
    return ties


def predicted_loss(
    table: BuiltTable | Sequence[int],
    surface: StepTimes,
    expected_tokens: ExpectedTokens,
    options: BuildOptions = _DEFAULT,
) -> FloatArray:
    """Share of predicted goodput that a table loses against the best length, float64[B].

    table: a built one, or a draft length per batch size ([b-1] for b). [b-1] is 0 where the
    best usable length (options.allowed, options.envelope) is used, below 0 where the table
    uses a better one that is not usable, and NaN where its length is not covered.
    """
    chosen = table.draft_lengths if isinstance(table, BuiltTable) else tuple(table)
    plane = goodput_map(surface, expected_tokens, len(chosen), options.allowed, options.envelope)
    column = {k: j for j, k in enumerate(plane.lengths)}
    own = np.array(
        [plane.goodput_tok_s[i, column[k]] if k in column else 0.0 for i, k in enumerate(chosen)]
    )
    return np.where(own > 0, 1.0 - own / plane.best_tok_s(), np.nan)


def _unused_lengths(surface: StepTimes, plane: GoodputMap) -> list[str]:
    unknown = [k for k in surface.draft_lengths if k not in plane.lengths]
    return [f"draft lengths {unknown} are left out: their expected tokens are unknown"] * bool(
        unknown
    )


def _apply_tpot(
    plane: GoodputMap, max_tpot_s: float | None
) -> tuple[BoolArray, int | None, list[str]]:
    """The choosable cells, the batch size up to which the limit holds, and notes."""
    if max_tpot_s is None:
        return plane.usable, None, []
    within = plane.within_tpot(max_tpot_s)
    met: BoolArray = np.logical_or.reduce(within, axis=1)
    choosable = np.where(met[:, None], within, plane.usable)
    holds_to = int(np.argmin(met)) if not met.all() else plane.max_batch_size
    notes = [
        f"no draft length meets {max_tpot_s * 1e3:g} ms per output token at batch sizes "
        f"{s.first} to {s.last}; the one with the lowest is used"
        for s in to_segments([int(m) for m in met])
        if not s.column
    ]
    return choosable, holds_to, notes


def _range(plane: GoodputMap, segment: Segment) -> TableRange:
    goodput = plane.goodput_tok_s[segment.first - 1 : segment.last, segment.column]
    return TableRange(
        segment.first,
        segment.last,
        plane.lengths[segment.column],
        float(goodput.mean()),
        float(goodput[0]),
        float(goodput[-1]),
    )
