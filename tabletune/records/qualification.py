"""What a sacrificial engine ran without fault, and what it did not."""

from typing import ClassVar, Literal

from pydantic import Field

from tabletune.records.base import Facts, Record
from tabletune.records.plan import Envelope

FaultKind = Literal["crash", "hang", "stall", "ignored", "output", "refused"]


class Check(Facts):
    """One thing tried: a length at a batch size, a switch, a shrinking batch, a prefill join."""

    name: str
    batch_size: int
    draft_length: int
    previous_length: int | None = None
    passed: bool
    fault: FaultKind | None = None
    evidence: str = ""


class Attempt(Facts):
    """One setting that was tried: its plan's hash, and how it ended."""

    plan: str
    description: str
    passed: bool
    reason: str = ""


class Qualification(Record):
    """The checks of one engine under one plan, and the envelope that follows from them."""

    KIND: ClassVar[str] = "qualification"

    fingerprint: str
    plan: str
    checks: tuple[Check, ...]
    attempts: tuple[Attempt, ...]
    envelope: Envelope
    excluded: tuple[str, ...] = ()
    wall_time_s: float = Field(ge=0)
    qualified_at: str
