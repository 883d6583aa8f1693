"""Corrects a candidate where a fixed draft length measured better. Pure: windows in, table out.

The candidate was built from step times and from acceptance on sample prompts, both of which
err. Where, at some load, a fixed length beats it beyond the margin, that length takes its place
at the batch sizes that belong to the load:

- a load's *usual* batch sizes are those that all but the rarest of its steps had;
- between neighbouring loads the border lies at the geometric middle of their usual medians;
- within these borders the change reaches as far as the candidate's own ranges around the usual
  sizes: an edge of the table that no window shows to be wrong stays where it is.

The largest advantage is tried first; a length that would leave the envelope or make a forbidden
transition is passed over. The corrected table is a new candidate: it is to be validated itself.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tabletune.measure.judge import Comparison
from tabletune.records.plan import Envelope
from tabletune.records.policy import fixed_length

#: Batch sizes that fewer of a load's steps had, at either end, are not usual.
RARE_SHARE = 0.025


@dataclass(frozen=True)
class Change:
    """Batch sizes `first` … `last` (inclusive) get `draft_length`.

    Attributes:
        before: the lengths that the candidate had there, in rising order.
        because: the comparison with that fixed length.
    """

    first: int
    last: int
    draft_length: int
    before: tuple[int, ...]
    because: Comparison

    def words(self) -> str:
        """What was changed, and from which measurement."""
        where = f"batch size {self.first}"
        if self.last > self.first:
            where = f"batch sizes {self.first}–{self.last}"
        old, c = " and ".join(map(str, self.before)), self.because
        return (
            f"{where}: draft length {self.draft_length} in place of {old}, which at concurrency "
            f"{c.concurrency} had {c.ratio:.1%} ({c.low:.1%} to {c.high:.1%}) of its throughput "
            f"in {c.windows} windows"
        )


@dataclass(frozen=True)
class Correction:
    """The corrected lookup (index 0 unused) and the changes that led to it."""

    lookup: tuple[int, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Usual:
    """The batch sizes that a load's steps usually have."""

    low: int
    median: int
    high: int


def beats(comparison: Comparison) -> bool:
    """Whether a fixed length measured better than the candidate, beyond the margin."""
    return (
        fixed_length(comparison.policy) is not None
        and not comparison.same_lengths
        and comparison.ratio < comparison.bound
    )


def correct(
    lookup: Sequence[int],
    comparisons: Sequence[Comparison],
    steps: Mapping[int, Mapping[int, int]],
    envelope: Envelope,
) -> Correction | None:
    """The corrected lookup; None where nothing measured better, or nothing better is allowed.

    Args:
        lookup: draft length by batch size, index 0 unused.
        steps: how many steps each batch size had, by concurrency.
    """
    places = territories({c: usual(counts) for c, counts in steps.items() if counts})
    dense, changes = list(lookup), list[Change]()
    better = sorted((c for c in comparisons if beats(c)), key=lambda c: c.ratio)
    done: set[int] = set()
    for one in better:
        length = fixed_length(one.policy)
        if one.concurrency in done or one.concurrency not in places or length is None:
            continue
        first, last = _reach(lookup, *places[one.concurrency])
        changed = [*dense[:first], *[length] * (last - first + 1), *dense[last + 1 :]]
        taken = dense[first : last + 1] != list(lookup[first : last + 1])
        if taken or changed == dense or not allowed(changed, envelope, (first, last)):
            continue
        before = tuple(sorted(set(dense[first : last + 1])))
        changes.append(Change(first, last, length, before, one))
        dense = changed
        done.add(one.concurrency)
    changes.sort(key=lambda change: change.first)
    return Correction(tuple(dense), tuple(changes)) if changes else None


def usual(steps: Mapping[int, int]) -> Usual:
    """The usual batch sizes of steps that are counted by batch size."""
    sizes = np.repeat(list(steps), list(steps.values()))
    shares = (RARE_SHARE, 0.5, 1 - RARE_SHARE)
    low, median, high = np.quantile(sizes, shares, method="nearest").astype(int).tolist()
    return Usual(low, median, high)


def territories(loads: Mapping[int, Usual]) -> dict[int, tuple[Usual, int, int]]:
    """For each load its usual sizes, and the first and last batch size that belong to it.

    The last load's reach without end. Loads whose steps have the same median share theirs.
    """
    medians = sorted({load.median for load in loads.values()})
    ends = [int(np.sqrt(a * b) + 1e-9) for a, b in itertools.pairwise(medians)]
    firsts = dict(zip(medians, [1, *(end + 1 for end in ends)], strict=True))
    lasts = dict(zip(medians, [*ends, 2**31], strict=True))
    return {c: (load, firsts[load.median], lasts[load.median]) for c, load in loads.items()}


def _reach(lookup: Sequence[int], load: Usual, first: int, last: int) -> tuple[int, int]:
    """The batch sizes to change: the candidate's ranges around the usual sizes, within borders."""
    last = min(last, len(lookup) - 1)
    low, high = min(max(load.low, first), last), min(max(load.high, first), last)
    while low > first and lookup[low - 1] == lookup[low]:
        low -= 1
    while high < last and lookup[high + 1] == lookup[high]:
        high += 1
    return low, high


def allowed(lookup: Sequence[int], envelope: Envelope, changed: tuple[int, int]) -> bool:
    """Whether a lookup keeps to the envelope where it changed, and to the transitions."""
    first, last = changed
    if not all(envelope.contains(b, lookup[b]) for b in range(first, last + 1)):
        return False
    forbidden = {frozenset(pair) for pair in envelope.forbidden_transitions}
    return not any(frozenset(pair) in forbidden for pair in itertools.pairwise(lookup[1:]))
