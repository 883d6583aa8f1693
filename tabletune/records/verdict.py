"""The verdict of a validation: measured throughput ratios and whether they pass."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from tabletune.records.base import Facts, Migration, Record


class Measured(Facts):
    """One policy's output throughput at one concurrency, in tokens per second, by window."""

    policy: str
    concurrency: int = Field(ge=1)
    windows_tok_s: tuple[Annotated[float, Field(ge=0)], ...]
    engine: Literal["measured", "stock", "no_speculation"] = "measured"


class Ratio(Facts):
    """Candidate over another policy at one concurrency, with a bootstrap interval."""

    policy: str
    concurrency: int = Field(ge=1)
    ratio: float = Field(ge=0)
    low: float = Field(ge=0)
    high: float = Field(ge=0)

    @model_validator(mode="after")
    def _interval_is_one(self) -> "Ratio":
        if self.low > self.high:
            raise ValueError(f"the interval {self.low} … {self.high} is upside down")
        return self


class Margins(Facts):
    """What the candidate must hold: ratios at or above 1 − margin.

    Attributes:
        best_fixed: against the best fixed length at each concurrency.
        incumbent: against the table in force.
        no_speculation: against an engine without speculation.
        confidence: of the intervals.
        slack: where more rounds left it unclear whether a ratio holds, it passes by its mean
            while its interval reaches no further than this below the bound.
    """

    best_fixed: float = Field(default=0.03, ge=0, lt=1)
    incumbent: float = Field(default=0.03, ge=0, lt=1)
    no_speculation: float = Field(default=0.05, ge=0, lt=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    slack: float = Field(default=0.10, ge=0, lt=1)


class StockCheck(Facts):
    """Whether a stock engine, without the plugin, follows the table as written."""

    passed: bool
    evidence: str


#: What every verdict of format 1 was judged with, which did not say so.
_FORMAT_1_SLACK = 0.10


def _with_slack(fields: dict[str, Any]) -> dict[str, Any]:
    """Format 1 to 2: the margins name the slack."""
    return {**fields, "margins": {**fields["margins"], "slack": _FORMAT_1_SLACK}}


class Verdict(Record):
    """The outcome of one validation; only a passing one lets a pointer move."""

    KIND: ClassVar[str] = "verdict"
    FORMAT_VERSION: ClassVar[int] = 2
    MIGRATIONS: ClassVar[dict[int, Migration]] = {1: _with_slack}

    table_version: str
    fingerprint: str
    incumbent_version: str = ""
    passed: bool
    reasons: tuple[str, ...]
    margins: Margins
    measured: tuple[Measured, ...]
    ratios: tuple[Ratio, ...]
    stock: StockCheck | None
    wall_time_s: float = Field(ge=0)
    validated_at: str

    @model_validator(mode="after")
    def _outcome_follows(self) -> "Verdict":
        if self.passed and self.stock is not None and not self.stock.passed:
            raise ValueError("the verdict passes although the stock engine did not follow")
        if not self.passed and not self.reasons:
            raise ValueError("the verdict fails without a reason")
        return self
