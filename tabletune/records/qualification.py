"""What a sacrificial engine ran without fault, and what it did not."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from tabletune.records.base import Facts, Record
from tabletune.records.plan import Envelope

FaultKind = Literal["crash", "hang", "stall", "ignored", "output", "refused"]


class Check(Facts):
    """One thing tried: a length at a batch size, a switch, a shrinking batch, a prefill join."""

    name: str
    batch_size: int = Field(ge=1)
    draft_length: int = Field(ge=0)
    previous_length: int | None = Field(default=None, ge=0)
    passed: bool
    fault: FaultKind | None = None
    evidence: str = ""

    @model_validator(mode="after")
    def _failure_is_explained(self) -> "Check":
        if self.passed and self.fault is not None:
            raise ValueError(f"check {self.name!r} passed and yet has the fault {self.fault!r}")
        if not self.passed and self.fault is None and not self.evidence:
            raise ValueError(f"check {self.name!r} failed without a fault or evidence")
        return self


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
