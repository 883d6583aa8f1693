"""The policies of a verdict: which they are, in which order and under which words."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from tabletune.records.verdict import Margins, Ratio, Verdict

PolicyKind = Literal[
    "candidate",
    "incumbent",
    "fixed",
    "no_speculation",
    "stock",
    "candidate_by_metrics",
    "other",
]
Standing = Literal["holds", "unclear", "fails"]
_NAMED: tuple[PolicyKind, ...] = (
    "candidate",
    "incumbent",
    "no_speculation",
    "stock",
    "candidate_by_metrics",
)
_ORDER: tuple[PolicyKind, ...] = (
    "candidate",
    "incumbent",
    "fixed",
    "no_speculation",
    "stock",
    "candidate_by_metrics",
    "other",
)


@dataclass(frozen=True)
class Policy:
    """A policy of a verdict; `draft_length` only where it is one fixed length."""

    name: str
    kind: PolicyKind
    draft_length: int | None = None

    @property
    def label(self) -> str:
        """For rows and tables."""
        if self.kind == "fixed":
            return (
                "draft off (K = 0)" if self.draft_length == 0 else f"fixed K = {self.draft_length}"
            )
        return {
            "candidate": "this table",
            "incumbent": "incumbent table",
            "no_speculation": "no speculation",
            "stock": "this table, stock engine",
            "candidate_by_metrics": "this table, by metrics",
        }.get(self.kind, self.name)

    @property
    def short_label(self) -> str:
        """For direct labels in a plot."""
        return f"K = {self.draft_length}" if self.kind == "fixed" else self.label

    @property
    def sort_key(self) -> tuple[int, int, str]:
        """Candidate first, longer fixed lengths before shorter ones."""
        return _ORDER.index(self.kind), -(self.draft_length or 0), self.name


def read_policy(name: str) -> Policy:
    """The policy behind a verdict's name, such as ``fixed-3``, ``K=0`` or ``no_speculation``."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    for kind in _NAMED:
        if plain == kind:
            return Policy(name, kind)
    fixed = re.fullmatch(r"(?:fixed_?)?(?:k_?|length_?)?(\d{1,3})", plain)
    if fixed:
        return Policy(name, "fixed", int(fixed.group(1)))
    return Policy(name, "other")


def in_order(names: Iterable[str]) -> list[Policy]:
    """The distinct policies, in the order of the report."""
    return sorted({read_policy(name) for name in names}, key=lambda policy: policy.sort_key)


def mean_tok_s(verdict: Verdict) -> dict[tuple[str, int], float]:
    """Mean throughput by (policy, concurrency)."""
    windows: dict[tuple[str, int], list[float]] = {}
    for item in verdict.measured:
        windows.setdefault((item.policy, item.concurrency), []).extend(item.windows_tok_s)
    return {key: fmean(values) for key, values in windows.items() if values}


def best_fixed(verdict: Verdict, concurrency: int) -> Ratio | None:
    """The ratio against the best fixed length at `concurrency`: the lowest of them."""
    fixed = [
        ratio
        for ratio in verdict.ratios
        if ratio.concurrency == concurrency and read_policy(ratio.policy).kind == "fixed"
    ]
    return min(fixed, key=lambda ratio: ratio.ratio, default=None)


def limit(margins: Margins, ratio: Ratio) -> float | None:
    """The least ratio that passes, 1 − margin; None where the verdict does not ask for one."""
    kind = read_policy(ratio.policy).kind
    if kind == "fixed":
        return 1 - margins.best_fixed
    if kind == "incumbent":
        return 1 - margins.incumbent
    return 1 - margins.no_speculation if kind == "no_speculation" else None


def standing(margins: Margins, ratio: Ratio) -> Standing:
    """Whether the whole interval lies at or above the limit, or the whole of it below."""
    least = limit(margins, ratio)
    if least is None or ratio.low >= least:
        return "holds"
    return "fails" if ratio.high < least else "unclear"


def too_noisy(margins: Margins, ratio: Ratio) -> bool:
    """Whether the mean reaches the limit, but the interval falls below it by more than the slack.

    Such a comparison fails a table, unless both sides ran the same draft lengths.
    """
    least = limit(margins, ratio)
    return least is not None and ratio.ratio >= least and ratio.low < least - margins.slack
