"""The names of the policies in a verdict, and what each is held to."""

from typing import Final, Literal, get_args

from tabletune.records.verdict import Margins

PolicyKind = Literal[
    "candidate",
    "incumbent",
    "fixed",
    "no_speculation",
    "stock",
    "candidate_by_metrics",
    "off_by_metrics",
    "other",
]

CANDIDATE: Final = "candidate"
INCUMBENT: Final = "incumbent"
NO_SPECULATION: Final = "no_speculation"
STOCK: Final = "stock"
#: The candidate under the plugin, measured with the instrument of other engines.
CANDIDATE_BY_METRICS: Final = "candidate_by_metrics"
#: K = 0 under the plugin, measured so too.
OFF_BY_METRICS: Final = "off_by_metrics"

_FIXED: Final = "fixed-"


def fixed_policy(draft_length: int) -> str:
    """The name of the policy that always uses `draft_length`."""
    return f"{_FIXED}{draft_length}"


def fixed_length(policy: str) -> int | None:
    """The draft length of a fixed policy, None for any other."""
    tail = policy.removeprefix(_FIXED)
    return int(tail) if tail != policy and tail.isdecimal() else None


def never_drafts(policy: str) -> bool:
    """Whether a policy of this name drafts nothing at all."""
    return policy in (fixed_policy(0), OFF_BY_METRICS, NO_SPECULATION)


def policy_kind(policy: str) -> PolicyKind:
    """What a policy of this name is; ``other`` for a name that no version ever gave."""
    if fixed_length(policy) is not None:
        return "fixed"
    for kind in get_args(PolicyKind):
        if policy == kind and kind != "fixed":
            return kind
    return "other"


def margin_of(policy: str, margins: Margins) -> float | None:
    """The margin towards `policy`; None for one that the candidate is not held against."""
    return {
        "fixed": margins.best_fixed,
        "incumbent": margins.incumbent,
        "no_speculation": margins.no_speculation,
    }.get(policy_kind(policy))
