"""A store for one engine under test, and short ways to promote tables in it."""

import datetime
import itertools
from dataclasses import dataclass, field
from pathlib import Path

from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.control import Control, Mode
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.step_profile import Cell, Profile
from tabletune.records.table import Parents, TableVersion, table_from_dense
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import promote, rollback

AT = "2026-01-01T00:00:00+00:00"


@dataclass
class PromotedStore:
    """Versions for an engine of `size` requests and drafts of up to `longest`.

    step_time_s: what the made-up profile says of a step with one request and no draft.
    """

    root: Path
    fingerprint: Fingerprint
    size: int
    longest: int
    step_time_s: float = 0.05
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.store = FolderStore(self.root)
        self.store.put(self.fingerprint)

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def promote(self, dense: list[int], evidence: bool = True, channel: str = "live") -> str:
        """Put a dense table (entry 0 unused) in force; the hash of its version."""
        version = self.store.put(self.version(dense, evidence))
        promote(self.store, channel, version, None, _now(), "test", "a test", force=True)
        return version

    def rollback(self) -> str:
        """Back to the version before."""
        return rollback(self.store, "live", _now(), "test", "a test").pointer.table_version

    def switch(self, mode: Mode) -> None:
        """The kill switch."""
        self.store.write_control(
            Control(channel="live", mode=mode, set_at=_now(), set_by="test", reason="a test")
        )

    def version(self, dense: list[int], evidence: bool) -> TableVersion:
        lengths = tuple(range(self.longest + 1))
        parents = Parents()
        if evidence:
            parents = Parents(
                profile=self.store.put(self._profile()),
                acceptance_prior=self.store.put(self._prior()),
            )
        return TableVersion(
            table=table_from_dense(dense, self.longest),
            plan=CapturePlan(
                graph_mode="NONE",
                capture_sizes=(),
                lengths=lengths,
                max_draft_length=self.longest,
                max_num_seqs=self.size,
                graph_count=0,
            ),
            envelope=Envelope(allowed={str(length): ((1, self.size),) for length in lengths}),
            fingerprint=self.fingerprint.identity,
            parents=parents,
            created_at=AT,
            created_by=f"test {next(self.numbers)}",
        )

    def _profile(self) -> Profile:
        def time_s(batch_size: int, length: int) -> float:
            return self.step_time_s * (1 + 0.05 * batch_size * (length + 1))

        cells = tuple(
            Cell(
                batch_size=b,
                draft_length=k,
                samples_s=(time_s(b, k),) * 20,
                scheduled_tok=float(b * (k + 1)),
                context_tok=100.0,
            )
            for b in range(1, self.size + 1)
            for k in range(self.longest + 1)
        )
        return Profile(
            fingerprint=self.fingerprint.identity,
            plan="0" * 64,
            method="in_engine",
            step_kind="mixed",
            prompt_tok=10,
            context_tok=100,
            cells=cells,
            wall_time_s=1.0,
            measured_at=AT,
        )

    def _prior(self) -> AcceptancePrior:
        drafted = (400,) * self.longest
        accepted = tuple(int(400 * 0.7**i) for i in range(1, self.longest + 1))
        return AcceptancePrior(
            fingerprint=self.fingerprint.identity,
            draft_length=self.longest,
            source="measured",
            prompt_count=10,
            prompts_hash="",
            counts=PositionCounts(
                drafted_through=drafted, accepted_through=accepted, request_steps=400
            ),
            wall_time_s=1.0,
            measured_at=AT,
        )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()
