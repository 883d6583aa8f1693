"""How far a table's edges move to become those of another. Pure."""

from dataclasses import dataclass

from tabletune.records.table import Table


@dataclass(frozen=True)
class EdgeMove:
    """The edge where draft lengths of `draft_length` or more end or begin moves.

    It stood before batch size `from_batch_size` and stands before `to_batch_size` now, or the
    other way round; `factor` is the larger over the smaller.
    """

    draft_length: int
    from_batch_size: int
    to_batch_size: int

    @property
    def factor(self) -> float:
        return self.to_batch_size / self.from_batch_size

    def words(self) -> str:
        """Such as ``the edge of draft length 3 moves between batch sizes 8 and 20 (×2.5)``."""
        return (
            f"the edge of draft length {self.draft_length} moves between batch sizes "
            f"{self.from_batch_size} and {self.to_batch_size} (×{self.factor:.2g})"
        )


def edge_moves(old: Table, new: Table) -> tuple[EdgeMove, ...]:
    """All edge movements over the batch sizes that both tables cover.

    For each draft length k, the batch sizes at which exactly one of the tables uses k or more
    form runs; a run first … last is an edge that moved from `first` to `last` + 1. For tables
    that fall with the batch size these are their edges exactly.
    """
    sizes = min(old.max_num_seqs, new.max_num_seqs)
    before, after = old.dense(), new.dense()
    moves: list[EdgeMove] = []
    for length in range(1, max(old.max_draft_length, new.max_draft_length) + 1):
        first: int | None = None
        for size in range(1, sizes + 2):
            differs = size <= sizes and (before[size] >= length) != (after[size] >= length)
            if differs and first is None:
                first = size
            elif not differs and first is not None:
                moves.append(EdgeMove(length, first, size))
                first = None
    return tuple(moves)


def largest_length_change(old: Table, new: Table) -> int:
    """The largest change of the draft length at a batch size that both tables cover."""
    pairs = zip(old.dense()[1:], new.dense()[1:], strict=False)
    return max(abs(left - right) for left, right in pairs)
