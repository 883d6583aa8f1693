"""Live snapshots for the tests of maintenance."""

from collections.abc import Mapping

from tabletune.records.acceptance import PositionCounts
from tabletune.records.snapshot import (
    BatchUse,
    DecisionSummary,
    EngineRun,
    LiveCell,
    LiveSnapshot,
)
from tabletune.records.table import table_from_dense
from tests.maintain.scenes import NOW
from tests.store.world import FINGERPRINT

END_S = NOW.timestamp()


def snapshot(
    run_id: str = "engine",
    *,
    version: str = "b" * 64,
    fingerprint: str = FINGERPRINT.identity,
    uses: Mapping[int, tuple[int, float, int]] | None = None,
    drafted: tuple[int, ...] = (),
    accepted: tuple[int, ...] = (),
    offered: tuple[int, ...] | None = None,
    residuals: Mapping[tuple[int, int], float] | None = None,
    falls: int = 0,
    age_s: float = 60.0,
    mode: str = "adapt",
    channel: str = "live",
) -> LiveSnapshot:
    offered = drafted if offered is None else offered
    return LiveSnapshot(
        channel=channel,
        mode=mode,
        fingerprint=fingerprint,
        engine=EngineRun(
            run_id=run_id,
            started_unix_s=END_S - age_s - 100_000,
            plugin_version="0.1.0",
            vllm_version="0.32.0",
            runner="V2",
            device="cpu",
            method="ngram",
        ),
        table_version=version,
        table=table_from_dense([0] + [1] * 16, 3),
        from_unix_s=END_S - age_s - 100_000,
        to_unix_s=END_S - age_s,
        counts=PositionCounts(
            drafted_through=drafted,
            accepted_through=accepted,
            request_steps=max((0, *offered)),
        ),
        offered_through=offered,
        cells=tuple(
            LiveCell(
                batch_size=size,
                draft_length=length,
                steps=100,
                step_time_s=0.02 * residual,
                profiled_step_time_s=0.02,
            )
            for (size, length), residual in (residuals or {}).items()
        ),
        batch_sizes=tuple(
            BatchUse(batch_size=size, steps=steps, seconds=seconds, output_tok=tok)
            for size, (steps, seconds, tok) in (uses or {}).items()
        ),
        decisions=DecisionSummary(counts={}, falls=falls),
    )
