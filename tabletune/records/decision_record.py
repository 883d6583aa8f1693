"""The record of a decision about a promotion: who or what, when, from which to which, why."""

from typing import ClassVar, Literal

from pydantic import Field

from tabletune.records.base import HASH_OR_EMPTY_PATTERN, Facts, Record
from tabletune.records.pointer import CHANNEL_PATTERN

#: What was decided. `promote`, `ask`, `refuse`, `nothing_to_do`: by the gate. `approve`,
#: `reject`: by a person. `canary_begin`, `canary_promote`, `canary_back`: of a canary.
Outcome = Literal[
    "promote",
    "ask",
    "refuse",
    "nothing_to_do",
    "approve",
    "reject",
    "canary_begin",
    "canary_promote",
    "canary_back",
    "rollback",
]


class Evidence(Facts):
    """What was looked at: a kind of record and its content hash."""

    kind: str
    name: str


class PromotionDecision(Record):
    """One decision, immutable. It is written before what it decides is done.

    Attributes:
        deployment: its name.
        from_version: in force on `channel` when it was decided; empty for none.
        from_pointer: the channel's state then; empty for none.
        to_version: what the decision is about.
        reasons: every one, in words.
        policy: the limits that were applied, by name.
        answers: the decision that this one answers (an approval), empty for none.
    """

    KIND: ClassVar[str] = "promotion_decision"

    deployment: str
    channel: str = Field(pattern=CHANNEL_PATTERN)
    outcome: Outcome
    from_version: str = Field(default="", pattern=HASH_OR_EMPTY_PATTERN)
    from_pointer: str = Field(default="", pattern=HASH_OR_EMPTY_PATTERN)
    to_version: str = Field(pattern=HASH_OR_EMPTY_PATTERN)
    reasons: tuple[str, ...] = Field(min_length=1)
    evidence: tuple[Evidence, ...] = ()
    policy: dict[str, str] = Field(default_factory=dict[str, str])
    numbers: dict[str, float] = Field(default_factory=dict[str, float])
    answers: str = Field(default="", pattern=HASH_OR_EMPTY_PATTERN)
    decided_at: str
    decided_by: str = Field(min_length=1)
