"""What a deployment's owner decides about promotions, canaries, drift and retention."""

import re
from typing import Literal

from pydantic import Field, model_validator

from tabletune.records.base import Facts
from tabletune.records.pointer import CHANNEL_PATTERN


class GatePolicy(Facts):
    """When a validated table may replace the one in force.

    Attributes:
        least_gain: share of measured throughput over the incumbent that is worth a change,
            while the incumbent's fingerprint still holds. 0.01 is 1 %.
        verdict_max_age_h: hours after which a verdict says too little.
        evidence_max_age_d: days after which profile and acceptance say too little.
        clock_skew_s: how far in the future a record may be dated before it is refused.
        largest_edge_factor: largest movement of an edge without a person: the larger of the
            two batch sizes over the smaller.
        largest_length_change: largest change of a draft length at any batch size without one.
        approval: when a person is asked. `when_large`: for movements above the two limits, and
            for a first promotion if `ask_first`.
        ask_first: whether a channel's first table is one that a person is asked about.
        require_stock_check: whether a stock engine, without the plugin, must have followed it.
    """

    least_gain: float = Field(default=0.01, ge=0, lt=1)
    verdict_max_age_h: float = Field(default=24.0, gt=0)
    evidence_max_age_d: float = Field(default=30.0, gt=0)
    clock_skew_s: float = Field(default=300.0, ge=0)
    largest_edge_factor: float = Field(default=2.0, ge=1)
    largest_length_change: int = Field(default=2, ge=0)
    approval: Literal["never", "when_large", "always"] = "when_large"
    ask_first: bool = False
    require_stock_check: bool = True


class CanaryPolicy(Facts):
    """How a canary is judged; times in minutes.

    Attributes:
        minutes: how long at least; 0 promotes to the live channel at once.
        most_minutes: after this it is decided with what there is.
        margin: share of throughput that the canary may lose.
        confidence: of the interval of the ratio.
        least_steps: engine steps on either side below which nothing is said.
        without_traffic: what happens if there were too few steps until `most_minutes`.
    """

    minutes: float = Field(default=30.0, ge=0)
    most_minutes: float = Field(default=180.0, gt=0)
    margin: float = Field(default=0.03, ge=0, lt=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    least_steps: int = Field(default=1000, ge=1)
    without_traffic: Literal["promote", "back"] = "back"

    @model_validator(mode="after")
    def _ends(self) -> "CanaryPolicy":
        if self.most_minutes < self.minutes:
            raise ValueError(f"most_minutes {self.most_minutes} is less than {self.minutes}")
        return self


class ChannelPolicy(Facts):
    """The channels of a deployment.

    Attributes:
        live: the one that engines follow.
        canary: the one on which candidates are tried first; none for no canaries.
    """

    live: str = Field(default="live", pattern=CHANNEL_PATTERN)
    canary: str | None = Field(default=None, pattern=CHANNEL_PATTERN)

    @model_validator(mode="after")
    def _differ(self) -> "ChannelPolicy":
        if self.canary == self.live:
            raise ValueError(f"the canary channel is the live channel {self.live!r}")
        return self


class DriftPolicy(Facts):
    """How far live traffic may be off what the table was built from.

    Attributes:
        survival: largest difference of survival at any draft position, absolute.
        step_time: largest relative difference of step times.
        least_request_steps: below so many request-steps at a position nothing is said.
        snapshot_max_age_h: older snapshots do not count.
        every_h: hours between two looks at the snapshots of a deployment.
        most_engines: snapshots read at one look; another part of a larger fleet each time.
        use_harvest: whether a retune takes acceptance from a harvest of live traffic in place
            of the sample prompts, where there is one for the same fingerprint.
        harvest_max_age_d: days after which a harvest counts no more.
    """

    survival: float = Field(default=0.10, gt=0, lt=1)
    step_time: float = Field(default=0.15, gt=0)
    least_request_steps: int = Field(default=2000, ge=1)
    snapshot_max_age_h: float = Field(default=6.0, gt=0)
    every_h: float = Field(default=6.0, ge=0)
    most_engines: int = Field(default=32, ge=1)
    use_harvest: bool = True
    harvest_max_age_d: float = Field(default=30.0, gt=0)


class RetentionPolicy(Facts):
    """What a store keeps although no pointer names it any more.

    Attributes:
        keep_versions: the last so many different versions of each channel stay with all their
            measurements, the one in force among them.
        history_days: so do versions that were in force within so many days.
        young_days: younger records stay, whoever names them: a run may still be going.
        engine_days: what a snapshot names stays while it is younger than this; older snapshots
            are of engines that are no more, and go too.
        unattended: whether the weekly flow removes; otherwise it only says what it would.
    """

    keep_versions: int = Field(default=5, ge=2)
    history_days: float = Field(default=90.0, ge=0)
    young_days: float = Field(default=7.0, ge=1)
    engine_days: float = Field(default=30.0, ge=1)
    unattended: bool = False


class Schedule(Facts):
    """When to look.

    Attributes:
        cron: five fields: minute, hour, day of the month, month, day of the week.
        timezone: an IANA name, such as `Europe/Berlin`.
    """

    cron: str = "0 3 * * *"
    timezone: str = "UTC"

    @model_validator(mode="after")
    def _readable(self) -> "Schedule":
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"no time zone {self.timezone!r}") from error
        check_cron(self.cron)
        return self


_CRON_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("day", 0, 7))
_CRON_NAMES = re.compile(
    "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat", re.IGNORECASE
)


def check_cron(text: str) -> None:
    """Do nothing for five fields of `*`, numbers, ranges, lists and steps.

    Raises:
        ValueError: something else; says which field.
    """
    parts = text.split()
    if len(parts) != len(_CRON_FIELDS):
        raise ValueError(f"expected 5 cron fields, found {len(parts)} in {text!r}")
    for part, (name, least, most) in zip(parts, _CRON_FIELDS, strict=True):
        for item in part.split(","):
            if not _cron_item(item, least, most):
                raise ValueError(f"cron field {name!r}: found {item!r}, expected {least}–{most}")


def _cron_item(item: str, least: int, most: int) -> bool:
    base, slash, step = item.partition("/")
    if slash and not (step.isdecimal() and int(step) > 0):
        return False
    if base == "*":
        return True
    ends = base.split("-")
    if len(ends) > 2:
        return False
    if all(_CRON_NAMES.fullmatch(end) for end in ends):
        return True
    if not all(end.isascii() and end.isdecimal() and least <= int(end) <= most for end in ends):
        return False
    return int(ends[0]) <= int(ends[-1])
