"""The policies of a verdict: which they are, in which order and under which words."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, get_args

from tabletune.records.policy import PolicyKind, fixed_length, margin_of, policy_kind
from tabletune.records.verdict import Margins, Ratio, Verdict

Standing = Literal["holds", "unclear", "fails"]
_ORDER: tuple[PolicyKind, ...] = get_args(PolicyKind)


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
            "off_by_metrics": "draft off, by metrics",
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
    """The policy behind a verdict's name; see records/policy.py."""
    return Policy(name, policy_kind(name), fixed_length(name))


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
    margin = margin_of(ratio.policy, margins)
    return None if margin is None else 1 - margin


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
