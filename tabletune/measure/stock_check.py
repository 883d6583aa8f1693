"""Does a stock engine, without the plugin, follow the table that it was booted with?

Two things are looked at: the guesses per draft that the metrics page shows at a low and at a
high concurrency, against what the table says for the batch sizes that ran; and throughput,
against the candidate under the plugin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tabletune.core.bootstrap import ratio_interval
from tabletune.measure.windows import MetricsWindow
from tabletune.records.table import Table
from tabletune.records.verdict import StockCheck

#: Guesses per draft may be this far off: the last draft of a request is cut short, and a
#: batch may shrink between two looks.
DRAFT_SLACK = 0.15
#: A throughput below by so many margins does not fit, however wide its interval.
FAR_BELOW = 3.0


@dataclass(frozen=True)
class StockPart:
    """What was found at one concurrency: the finding in words, and whether it fits."""

    passed: bool
    evidence: str


def check_lengths(
    table: Table, concurrency: int, windows: Sequence[MetricsWindow], always_proposes: bool
) -> StockPart:
    """Guesses per draft at one concurrency.

    always_proposes: model drafters fill each draft, so the mean lies between the least and
    the largest length of the table over the batch sizes seen; n-gram and suffix drafters
    propose fewer, so only the largest bounds it.
    """
    low = max(1, min(w.running_low for w in windows))
    high = max(low, *(w.running_high for w in windows))
    high = min(table.max_num_seqs, high)
    low = min(low, high)
    lengths = [table.draft_length(b) for b in range(low, high + 1)]
    least, largest = min(lengths), max(lengths)
    drafts = sum(w.counts.drafts for w in windows)
    draft_tok = sum(w.counts.draft_tok for w in windows)
    sizes = f"{low}" if low == high else f"{low}–{high}"
    table_says = f"{least}" if least == largest else f"{least} to {largest}"
    start = f"concurrency {concurrency}, batch sizes {sizes}: the table says {table_says}"
    if not drafts:
        if largest == 0:
            return StockPart(True, f"{start}, and nothing was drafted")
        passed = least == 0 or not always_proposes
        return StockPart(passed, f"{start}, but nothing was drafted")
    mean = draft_tok / drafts
    found = f"{start}, {mean:.2f} guesses per draft were seen in {drafts:.0f} drafts"
    if largest == 0:
        # A few drafts are left over from smaller batches at the window's start.
        tokens = sum(w.counts.generation_tok for w in windows)
        return StockPart(drafts <= DRAFT_SLACK * tokens, found)
    too_many = mean > largest + DRAFT_SLACK
    too_few = always_proposes and mean < max(least, 1) - DRAFT_SLACK
    return StockPart(not too_many and not too_few, found)


def check_throughput(
    concurrency: int, stock_tok_s: Sequence[float], plugin_tok_s: Sequence[float], margin: float
) -> StockPart:
    """Mean throughput against the candidate's under the plugin, within the margin below.

    It does not fit where it is clearly below (the interval's upper end), or far below though
    noisy. A stock engine that is faster fits: the plugin's recording costs something.
    """
    ratio = (sum(stock_tok_s) / len(stock_tok_s)) / (sum(plugin_tok_s) / len(plugin_tok_s))
    high = ratio
    if min(len(stock_tok_s), len(plugin_tok_s)) > 1:
        rng = np.random.default_rng(0)  # the same windows always give the same answer
        high = ratio_interval(stock_tok_s, plugin_tok_s, rng=rng, paired=False).high
    evidence = f"concurrency {concurrency}: {ratio:.1%} of the throughput under the plugin"
    fits = high >= 1 - margin and ratio >= 1 - FAR_BELOW * margin
    return StockPart(fits, evidence)


def stock_check(
    table: Table,
    windows: Mapping[int, Sequence[MetricsWindow]],
    plugin_tok_s: Mapping[int, Sequence[float]],
    always_proposes: bool,
    margin: float,
) -> StockCheck:
    """The whole check; `windows` by concurrency, `plugin_tok_s` where it was measured too.

    Raises:
        ValueError: no windows.
    """
    if not windows or not all(windows.values()):
        raise ValueError(f"expected windows at each concurrency, found {dict(windows)!r}")
    parts = [
        check_lengths(table, concurrency, windows[concurrency], always_proposes)
        for concurrency in sorted(windows)
    ]
    parts += [
        check_throughput(concurrency, [w.rate_tok_s for w in windows[concurrency]], rates, margin)
        for concurrency, rates in sorted(plugin_tok_s.items())
        if concurrency in windows and rates
    ]
    misfits = [part.evidence for part in parts if not part.passed]
    if misfits:
        return StockCheck(passed=False, evidence="does not fit: " + "; ".join(misfits))
    return StockCheck(passed=True, evidence="; ".join(part.evidence for part in parts))
