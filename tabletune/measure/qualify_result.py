"""What one qualification found, before it becomes a record."""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tabletune.measure.qualify_cells import CellStatistics, SlowestStep
from tabletune.measure.qualify_envelope import batch_sizes_without_length
from tabletune.measure.qualify_findings import Finding
from tabletune.records.plan import Envelope
from tabletune.records.qualification import Check


@dataclass(frozen=True)
class QualificationResult:
    """One engine under one plan.

    Attributes:
        checks: all that was tried, with evidence.
        envelope: what may be used; empty when the engine died, hung or refused.
        excluded: in words, what the envelope leaves out and why.
        cells: medians per (batch size, draft length).
        slowest: per batch size the slowest decode step over its cell's median.
        max_num_seqs: the largest batch size asked for.
        wall_time_s: how long it took after boot.
    """

    checks: tuple[Check, ...]
    envelope: Envelope
    excluded: tuple[str, ...]
    cells: tuple[CellStatistics, ...]
    slowest: tuple[SlowestStep, ...]
    max_num_seqs: int
    wall_time_s: float

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)

    @property
    def fatal(self) -> Check | None:
        """The check in which the engine died, hung or refused, if any."""
        kinds = ("crash", "hang", "refused")
        return next((check for check in self.failed if check.fault in kinds), None)

    @property
    def stalled(self) -> bool:
        """Whether a cell or a switch stalls: another setting may do better."""
        return any(check.fault == "stall" for check in self.failed)

    @property
    def stalled_share(self) -> float:
        """Stalled cells and switches as a share of the cells seen."""
        stalled = sum(check.fault == "stall" for check in self.failed)
        return stalled / max(1, len(self.cells))

    @property
    def passed(self) -> bool:
        """Whether a table can be made: every batch size has a length, and some length drafts."""
        drafts = any(length > 0 for length in self.envelope.lengths)
        return self.fatal is None and drafts and not self.uncovered_sizes

    @property
    def uncovered_sizes(self) -> tuple[int, ...]:
        """The batch sizes at which no draft length passed."""
        return batch_sizes_without_length(self.envelope, self.max_num_seqs)

    @property
    def reason(self) -> str:
        """In words: why it failed, or what it leaves out."""
        if self.fatal is not None:
            return f"{self.fatal.fault}: {self.fatal.evidence}"
        if self.uncovered_sizes:
            sizes = self.uncovered_sizes
            some = ", ".join(map(str, sizes[:8])) + (", …" if len(sizes) > 8 else "")
            return f"no draft length passed at batch size {some}; " + "; ".join(self.excluded[:3])
        if not self.passed:
            return "no draft length above 0 passed; " + "; ".join(self.excluded[:3])
        return "; ".join(self.excluded)


def checks_of_cells(
    findings: Sequence[Finding],
    cells: Sequence[CellStatistics],
    walk_batch_sizes: Collection[int],
    lengths: Sequence[int],
) -> list[Check]:
    """Checks of the lengths: one per batch size of the walk, one for the sweep, one per fault."""
    alone = [f for f in findings if f.previous_length is None and f.fault != "output"]
    faulty = {(f.batch_size, f.draft_length) for f in alone}
    checks = [
        _failed(f"draft length {f.draft_length} at batch size {f.batch_size}", f) for f in alone
    ]
    measured = {(cell.batch_size, cell.draft_length): cell for cell in cells}
    for key in itertools.product(sorted(walk_batch_sizes), lengths):
        name = f"draft length {key[1]} at batch size {key[0]}"
        if key in measured and key not in faulty:
            cell = measured[key]
            text = f"{cell.median_s * 1e3:.1f} ms a step, {cell.samples} steps"
            checks.append(_passed(name, *key, text))
        elif key not in faulty:
            checks.append(_not_seen(name, *key))
    for length in lengths:
        sizes = sorted(c.batch_size for c in cells if c.draft_length == length)
        bad = [f for f in alone if f.draft_length == length]
        if sizes and not bad:
            text = f"{len(sizes)} batch sizes seen while the batch shrank"
            name = f"draft length {length} at batch sizes {sizes[0]} to {sizes[-1]}"
            checks.append(_passed(name, sizes[-1], length, text))
    return checks


def checks_of_switches(
    findings: Sequence[Finding],
    seen: dict[tuple[int, int], set[int]],
    lengths: Sequence[int],
    walk_batch_sizes: Sequence[int],
) -> list[Check]:
    """One check per ordered pair of lengths and batch size of the walk, and one per fault."""
    slow = [f for f in findings if f.previous_length is not None and f.fault == "stall"]
    faulty = {(f.batch_size, f.previous_length, f.draft_length) for f in slow}
    checks = [
        _failed(f"switch {f.previous_length} → {f.draft_length} at batch size {f.batch_size}", f)
        for f in slow
    ]
    for old in lengths:
        for new in lengths:
            for size in walk_batch_sizes:
                if old == new or (size, old, new) in faulty:
                    continue
                name = f"switch {old} → {new} at batch size {size}"
                if size in seen.get((old, new), ()):
                    checks.append(_passed(name, size, new, previous=old))
                else:
                    checks.append(_not_seen(name, size, new, old))
    return checks


def check_of(name: str, findings: Sequence[Finding], size: int, length: int, text: str) -> Check:
    """One check: failed by the first finding, else passed with `text` as its evidence."""
    if findings:
        return _failed(name, findings[0])
    return _passed(name, size, length, text)


def _failed(name: str, finding: Finding) -> Check:
    return Check(
        name=name,
        batch_size=finding.batch_size,
        draft_length=finding.draft_length,
        previous_length=finding.previous_length,
        passed=False,
        fault=finding.fault,
        evidence=finding.evidence,
    )


def _passed(
    name: str, size: int, length: int, text: str = "", previous: int | None = None
) -> Check:
    return Check(
        name=name,
        batch_size=size,
        draft_length=length,
        previous_length=previous,
        passed=True,
        evidence=text,
    )


def _not_seen(name: str, size: int, length: int, previous: int | None = None) -> Check:
    return Check(
        name=name,
        batch_size=size,
        draft_length=length,
        previous_length=previous,
        passed=False,
        evidence=f"never seen among {size} decoding requests, so it was not judged",
    )
