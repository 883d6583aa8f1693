"""Sums over all observations of an engine run, for its snapshots. Bounded by the engine's size."""

from collections import Counter, deque
from collections.abc import Callable, Sequence

import numpy as np

from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import LiveObservation
from tabletune.records.acceptance import PositionCounts
from tabletune.records.snapshot import (
    MAX_BATCH_SIZES,
    MAX_CELLS,
    MAX_DECISIONS,
    MAX_RANGES,
    MAX_REASON,
    BatchUse,
    DecisionNote,
    DecisionSummary,
    EngineRun,
    LiveCell,
    LiveSnapshot,
)
from tabletune.records.table import table_from_dense

ProfiledStepTime = Callable[[int, int], float | None]
"""(batch size, draft length) → profiled seconds of a steady step, None where not covered."""


class LiveTotals:
    """Feed it with every observation and decision; `snapshot` makes the record.

    Args:
        max_draft_length: positions counted.
        from_unix_s: when the sums begin.
    """

    def __init__(self, max_draft_length: int, from_unix_s: float) -> None:
        self._from_unix_s = from_unix_s
        self._through = np.zeros((3, max_draft_length), dtype=np.int64)
        self._request_steps = 0
        self._cells: dict[tuple[int, int], tuple[int, float]] = {}
        self._batches: dict[int, tuple[int, float, int]] = {}
        self._decisions: Counter[str] = Counter()
        self._last: deque[DecisionNote] = deque(maxlen=MAX_DECISIONS)

    def add(self, observation: LiveObservation) -> None:
        """Take one tick in."""
        self._request_steps += observation.request_steps
        self._through += np.array(
            [
                observation.offered_through,
                observation.drafted_through,
                observation.accepted_through,
            ],
            dtype=np.int64,
        ).reshape(self._through.shape)
        for cell in observation.cells:
            key = cell.batch_size, cell.draft_length
            steps, seconds = self._cells.get(key, (0, 0.0))
            self._cells[key] = (steps + cell.count, seconds + cell.count * cell.step_time_s)
        for batch in observation.batches:
            steps, seconds, tokens = self._batches.get(batch.batch_size, (0, 0.0, 0))
            self._batches[batch.batch_size] = (
                steps + batch.steps,
                seconds + batch.seconds,
                tokens + batch.output_tok,
            )

    def note(self, decision: Decision, unix_s: float) -> None:
        """Take one decision in."""
        self._decisions[decision.kind] += 1
        if decision.kind == "hold":
            return
        self._last.append(
            DecisionNote(
                unix_s=unix_s,
                kind=decision.kind,
                reason=decision.reason[:MAX_REASON],
                predicted_gain=decision.predicted_gain,
                ranges=_ranges(decision.lengths),
            )
        )

    def snapshot(
        self,
        *,
        channel: str,
        mode: str,
        fingerprint: str,
        engine: EngineRun,
        table_version: str,
        table: Sequence[int],
        to_unix_s: float,
        profiled: ProfiledStepTime,
        survival: Sequence[float] = (),
        traffic_changes: int = 0,
        exploration_spent_s: float = 0.0,
        falls: int = 0,
    ) -> LiveSnapshot:
        """The record; see `LiveSnapshot`. table: the one in force, [b-1] for batch size b."""
        offered, drafted, accepted = (tuple(row) for row in self._through.tolist())
        ranked = sorted(self._cells.items(), key=lambda item: (-item[1][0], item[0]))
        kept = sorted(ranked[:MAX_CELLS])
        used = sorted(self._batches.items(), key=lambda item: (-item[1][0], item[0]))
        return LiveSnapshot(
            channel=channel,
            mode=mode,
            fingerprint=fingerprint,
            engine=engine,
            table_version=table_version,
            table=table_from_dense([0, *table], max(1, self._through.shape[1], *table)),
            from_unix_s=self._from_unix_s,
            to_unix_s=max(to_unix_s, self._from_unix_s),
            counts=PositionCounts(
                drafted_through=drafted,
                accepted_through=accepted,
                request_steps=self._request_steps,
            ),
            offered_through=offered,
            survival=tuple(survival),
            traffic_changes=traffic_changes,
            cells=tuple(
                LiveCell(
                    batch_size=b,
                    draft_length=k,
                    steps=steps,
                    step_time_s=seconds / steps,
                    profiled_step_time_s=profiled(b, k),
                )
                for (b, k), (steps, seconds) in kept
            ),
            left_out_steps=sum(steps for _, (steps, _) in ranked[MAX_CELLS:]),
            batch_sizes=tuple(
                BatchUse(batch_size=b, steps=steps, seconds=seconds, output_tok=tokens)
                for b, (steps, seconds, tokens) in sorted(used[:MAX_BATCH_SIZES])
            ),
            decisions=DecisionSummary(
                counts=dict(self._decisions),
                last=tuple(self._last),
                exploration_spent_s=exploration_spent_s,
                falls=falls,
            ),
        )


def _ranges(lengths: Sequence[int] | None) -> tuple[tuple[int, int, int], ...] | None:
    if lengths is None:
        return None
    table = table_from_dense([0, *lengths], max(1, *lengths))
    rows = tuple((part.first, part.last, part.draft_length) for part in table.ranges)
    return rows if len(rows) <= MAX_RANGES else None
