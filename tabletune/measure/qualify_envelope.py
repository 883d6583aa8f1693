"""From findings to the envelope: which batch sizes each draft length may be used at. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from tabletune.measure.qualify_cells import CellKey
from tabletune.measure.qualify_findings import Finding
from tabletune.records.plan import Envelope


def ranges_of(batch_sizes: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Inclusive ranges that hold exactly these batch sizes, in rising order."""
    ranges = list[tuple[int, int]]()
    for size in sorted(set(batch_sizes)):
        if ranges and ranges[-1][1] == size - 1:
            ranges[-1] = (ranges[-1][0], size)
        else:
            ranges.append((size, size))
    return tuple(ranges)


def passed_sizes(tried: Collection[int], stalled: Collection[int], largest: int) -> set[int]:
    """Batch sizes from 1 to `largest` that may be used.

    A size that was not tried is taken to be like its neighbours: it passes when the nearest
    tried ones on both sides do.
    """
    passed, order = set[int](), sorted(b for b in tried if 1 <= b <= largest)
    for lower, upper in zip([None, *order], [*order, None], strict=True):
        if upper is not None and upper not in stalled:
            passed.add(upper)
        good = [b for b in (lower, upper) if b is not None and b not in stalled]
        first = 1 if lower is None else lower + 1
        last = largest if upper is None else upper - 1
        if len(good) == (lower is not None) + (upper is not None) and good:
            passed |= set(range(first, last + 1))
    return passed


def build_envelope(
    findings: Sequence[Finding],
    cells: Collection[CellKey],
    switches: Mapping[tuple[int, int], Collection[int]],
    lengths: Sequence[int],
    max_num_seqs: int,
    covered: Collection[CellKey] | None = None,
) -> tuple[Envelope, tuple[str, ...]]:
    """The envelope, and in words what it leaves out.

    Args:
        cells: the (batch size, draft length) seen in enough steady steps.
        switches: the (old, new) lengths seen, with the batch sizes.
        covered: the cells that the capture plan covers; None for all.
    """
    words, allowed = list[str](), dict[str, tuple[tuple[int, int], ...]]()
    for length in sorted(set(lengths)):
        mine = [f for f in findings if f.draft_length == length and f.previous_length is None]
        tried = {b for b, k in cells if k == length}
        sizes, why = _sizes_of_length(length, mine, tried, max_num_seqs)
        words += why
        uncovered = {b for b in sizes if covered is not None and (b, length) not in covered}
        if uncovered:
            text = f"draft length {length} at batch sizes {_words(ranges_of(uncovered))}: "
            words.append(text + "outside the capture plan")
        allowed[str(length)] = ranges_of(sizes - uncovered)
    usable = [k for k in sorted(set(lengths)) if allowed[str(k)]]
    forbidden = _forbidden(findings, switches, usable)
    words += [f"switch {old} → {new}: {why}" for (old, new), why in sorted(forbidden.items())]
    return Envelope(allowed=allowed, forbidden_transitions=tuple(sorted(forbidden))), tuple(words)


def _sizes_of_length(
    length: int, findings: Sequence[Finding], tried: Collection[int], largest: int
) -> tuple[set[int], list[str]]:
    """Where one length may be used by its own findings, and what they exclude, in words."""
    whole = [f for f in findings if f.fault in ("ignored", "output")]
    stalls = [f for f in findings if f.fault == "stall"]
    if whole:
        return set(), [f"draft length {length}: {f.evidence}" for f in whole]
    if not tried:
        return set(), [f"draft length {length}: no steady step was seen, so it is not trusted"]
    sizes = passed_sizes(tried, {f.batch_size for f in stalls}, largest)
    if not stalls:
        return sizes, []
    left_out = ranges_of(set(range(1, largest + 1)) - sizes)
    example = max(stalls, key=lambda f: f.batch_size).evidence
    text = f"draft length {length} at batch sizes {_words(left_out)}: stalls; for example {example}"
    return sizes, [text]


def _forbidden(
    findings: Sequence[Finding],
    switches: Mapping[tuple[int, int], Collection[int]],
    usable: Sequence[int],
) -> dict[tuple[int, int], str]:
    """The switches that must not be made, with the reason."""
    pairs = [(old, new) for old in usable for new in usable if old != new]
    forbidden = {
        (old, new): "it was never seen among decodes"
        for old, new in pairs
        if not switches.get((old, new))
    }
    for finding in findings:
        if finding.previous_length is None:
            continue
        if finding.fault == "stall":
            forbidden[finding.previous_length, finding.draft_length] = finding.evidence
        else:
            # After 0 the drafter's state is stale, whatever length follows.
            text = f"acceptance does not come back: {finding.evidence}"
            forbidden |= {(0, new): text for old, new in pairs if old == 0}
    return forbidden


def _words(ranges: Sequence[tuple[int, int]], most: int = 12) -> str:
    parts = [str(a) if a == b else f"{a}–{b}" for a, b in ranges[:most]]
    more = len(ranges) - most
    return ", ".join(parts) + (f" and {more} more ranges" if more > 0 else "")


def batch_sizes_without_length(envelope: Envelope, max_num_seqs: int) -> tuple[int, ...]:
    """The batch sizes at which no draft length is allowed: no table can serve them."""
    sizes = set(range(1, max_num_seqs + 1))
    for ranges in envelope.allowed.values():
        for first, last in ranges:
            sizes -= set(range(first, last + 1))
    return tuple(sorted(sizes))
