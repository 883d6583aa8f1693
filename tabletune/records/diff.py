"""What differs between two tables, as rows and in words."""

from dataclasses import dataclass
from itertools import pairwise

from tabletune.records.plan import CapturePlan
from tabletune.records.table import Table, TableVersion


@dataclass(frozen=True)
class DiffRow:
    """Batch sizes `first` … `last` (inclusive) go from `old_length` to `new_length`.

    A length is None where that table does not cover these batch sizes (or there is no old
    table at all).
    """

    first: int
    last: int
    old_length: int | None
    new_length: int | None

    def as_list(self) -> list[int | None]:
        """``[first, last, K_old, K_new]``."""
        return [self.first, self.last, self.old_length, self.new_length]

    def words(self) -> str:
        """Such as ``batch sizes 5–8: draft length 3 → 1``."""
        where = f"batch size {self.first}"
        if self.last > self.first:
            where = f"batch sizes {self.first}–{self.last}"
        return f"{where}: draft length {_length(self.old_length)} → {_length(self.new_length)}"


def diff_rows(old: Table | None, new: Table) -> tuple[DiffRow, ...]:
    """The batch sizes whose draft length differs, in rising order, as few rows as possible."""
    edges = {1}
    for table in (old, new):
        for part in table.ranges if table else ():
            edges |= {part.first, part.last + 1}
    rows: list[DiffRow] = []
    for first, after in pairwise(sorted(edges)):
        lengths = (_at(old, first), _at(new, first))
        if lengths[0] == lengths[1]:
            continue
        before = rows[-1] if rows else None
        if before and before.last + 1 == first and lengths == _lengths(before):
            rows[-1] = DiffRow(before.first, after - 1, *lengths)
        else:
            rows.append(DiffRow(first, after - 1, *lengths))
    return tuple(rows)


def diff_words(old: Table | None, new: Table) -> list[str]:
    """What `new` changes, one statement an entry; empty when both give the same lengths.

    Predicted goodput and notes do not count: they do not change what an engine does.
    """
    if old is None:
        return ["there was no table before", *(row.words() for row in diff_rows(old, new))]
    words: list[str] = []
    if old.max_num_seqs != new.max_num_seqs:
        words.append(f"largest batch size: {old.max_num_seqs} → {new.max_num_seqs}")
    if old.max_draft_length != new.max_draft_length:
        words.append(f"maximum draft length: {old.max_draft_length} → {new.max_draft_length}")
    return words + [row.words() for row in diff_rows(old, new)]


def plan_diff_words(old: CapturePlan, new: CapturePlan) -> list[str]:
    """What `new` changes in how an engine must be started; empty when nothing."""
    words: list[str] = []
    if old.graph_mode != new.graph_mode:
        words.append(f"graph mode: {old.graph_mode} → {new.graph_mode}")
    if old.lengths != new.lengths:
        words.append(f"draft lengths captured: {list(old.lengths)} → {list(new.lengths)}")
    if old.max_draft_length != new.max_draft_length:
        words.append(f"maximum draft length: {old.max_draft_length} → {new.max_draft_length}")
    if old.max_num_seqs != new.max_num_seqs:
        words.append(f"largest batch size: {old.max_num_seqs} → {new.max_num_seqs}")
    removed = sorted(set(old.capture_sizes) - set(new.capture_sizes))
    added = sorted(set(new.capture_sizes) - set(old.capture_sizes))
    if removed or added:
        words.append(
            f"capture sizes: {len(old.capture_sizes)} → {len(new.capture_sizes)}"
            f" (removed {_some(removed)}; added {_some(added)})"
        )
    return words


def version_diff_words(old: TableVersion | None, new: TableVersion) -> list[str]:
    """What `new` changes: the table, then whether the engine must be started differently."""
    if old is None:
        return diff_words(None, new.table)
    words = diff_words(old.table, new.table)
    restart = plan_diff_words(old.plan, new.plan)
    words += [f"engine start, {change}" for change in restart if change not in words]
    if old.objective != new.objective or old.max_tpot_s != new.max_tpot_s:
        words.append(f"objective: {_objective(old)} → {_objective(new)}")
    if old.fingerprint != new.fingerprint:
        words.append(f"fingerprint: {old.fingerprint[:12]} → {new.fingerprint[:12]}")
    return words


def _at(table: Table | None, batch_size: int) -> int | None:
    if table is None or batch_size > table.max_num_seqs:
        return None
    return table.draft_length(batch_size)


def _lengths(row: DiffRow) -> tuple[int | None, int | None]:
    return row.old_length, row.new_length


def _length(length: int | None) -> str:
    return "none" if length is None else str(length)


def _some(values: list[int], most: int = 6) -> str:
    if not values:
        return "none"
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(str(value) for value in values[:most]) + more


def _objective(version: TableVersion) -> str:
    if version.max_tpot_s is None:
        return version.objective
    return f"{version.objective} ({version.max_tpot_s * 1000:g} ms)"
