"""Engine steps as the plugin recorded them, as numpy columns."""

from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from tabletune.measure.clock import Clock


@dataclass(frozen=True)
class StepBatch:
    """Columns of n consecutive engine steps, oldest first.

    Attributes:
        seq: int64[n], the step's number since the engine started.
        time_s: float64[n], time of the step's update in seconds, in the engine's own clock.
        interval_s: float64[n], seconds since the update before; NaN after an idle engine.
        batch_size: int64[n], requests in the step, prefills included.
        draft_length: int64[n], the length chosen in the step, verified in a later one.
        verified_length: int64[n], the length in force for the drafts verified in the step;
            −1 where the decoding requests were not all in the step before.
        drafted_tok: int64[n], guesses verified in the step, over all requests.
        scheduled_tok: int64[n], tokens scheduled in the step.
        prefill_requests: int64[n], requests still computing their prompt.
        output_tok: int64[n], tokens emitted.
        request_steps: int64[n], decode requests that could have carried a draft.
        graph_mode: int64[n], −1 unknown, 0 none, 1 piecewise, 2 full.
        padded_tok: int64[n], the tokens that the graph was padded to, −1 unknown.
        drafted_through, accepted_through: int64[n, K_max], see records/acceptance.py.
        lost: steps that the ring had already overwritten.
    """

    seq: np.ndarray
    time_s: np.ndarray
    interval_s: np.ndarray
    batch_size: np.ndarray
    draft_length: np.ndarray
    verified_length: np.ndarray
    drafted_tok: np.ndarray
    scheduled_tok: np.ndarray
    prefill_requests: np.ndarray
    output_tok: np.ndarray
    request_steps: np.ndarray
    graph_mode: np.ndarray
    padded_tok: np.ndarray
    drafted_through: np.ndarray
    accepted_through: np.ndarray
    next_seq: int = 0
    lost: int = 0

    def __len__(self) -> int:
        return len(self.seq)

    def select(self, mask: np.ndarray) -> "StepBatch":
        """The steps where `mask` (bool[n]) holds."""
        columns = {f.name: getattr(self, f.name)[mask] for f in fields(self) if _is_column(f.name)}
        return StepBatch(**columns, next_seq=self.next_seq, lost=self.lost)


def _is_column(name: str) -> bool:
    return name not in ("next_seq", "lost")


def concatenate(batches: list[StepBatch]) -> StepBatch:
    """Join batches read one after the other; at least one is needed."""
    filled = [b for b in batches if len(b)] or batches[:1]  # empty ones have no positions
    columns = {
        f.name: np.concatenate([getattr(b, f.name) for b in filled])
        for f in fields(StepBatch)
        if _is_column(f.name)
    }
    lost = sum(b.lost for b in batches)
    return StepBatch(**columns, next_seq=batches[-1].next_seq, lost=lost)


class StepSource(Protocol):
    """What hands out recorded steps: a running engine, or a recording in a test."""

    def steps(self, since: int = 0, limit: int = 16_384) -> StepBatch: ...


class StepReader:
    """Reads each recorded step once, from now on.

    Args:
        source: the engine.
        from_start: begin with the oldest step still recorded instead of with the next one.
    """

    def __init__(self, source: StepSource, from_start: bool = False) -> None:
        self._source = source
        self._next = 0 if from_start else source.steps(since=2**53, limit=1).next_seq

    @property
    def next_seq(self) -> int:
        """The number of the next step that will be read."""
        return self._next

    def read_new(self) -> StepBatch:
        """What was recorded since the last read."""
        batch = self._source.steps(since=self._next)
        self._next = batch.next_seq
        return batch

    def read_steps(self, count: int, clock: Clock, timeout_s: float) -> StepBatch:
        """Read until `count` new steps are there, or `timeout_s` passed; what there is."""
        deadline = clock.now_s() + timeout_s
        batches = [self.read_new()]
        have = len(batches[0])
        while have < count and clock.now_s() < deadline:
            known_s = batches[-1].interval_s[np.isfinite(batches[-1].interval_s)]
            # After an idle engine no interval may be known yet.
            wait_s = (count - have) * float(np.median(known_s)) if known_s.size else 0.02
            clock.sleep_s(min(max(wait_s, 0.005), 0.5))
            batches.append(self.read_new())
            have += len(batches[-1])
        return concatenate(batches)


def parse_steps(answer: Any) -> StepBatch:
    """The plugin's columnar answer (``GET /tabletune/steps``, docs/plugin.md) as columns."""
    columns: dict[str, Any] = answer["columns"]

    def ints(name: str) -> np.ndarray:
        return np.asarray(columns[name], dtype=np.int64)

    def positions(name: str) -> np.ndarray:
        return ints(name).reshape(count, -1 if count else 0)

    count = len(columns["time_s"])
    interval_s = np.asarray(columns["step_time_s"], dtype=np.float64)
    interval_s[ints("after_idle") != 0] = np.nan  # the engine waited for work, not on it
    return StepBatch(
        seq=int(answer["first"]) + np.arange(count, dtype=np.int64),
        time_s=np.asarray(columns["time_s"], dtype=np.float64),
        interval_s=interval_s,
        batch_size=ints("batch_size"),
        draft_length=ints("draft_length"),
        verified_length=ints("draft_length_verified"),
        drafted_tok=ints("draft_tokens"),
        scheduled_tok=ints("scheduled_tokens"),
        prefill_requests=ints("prefill_requests"),
        output_tok=ints("output_tokens"),
        request_steps=ints("request_steps"),
        graph_mode=ints("graph_mode"),
        padded_tok=ints("padded_tokens"),
        drafted_through=positions("drafted_through"),
        accepted_through=positions("accepted_through"),
        next_seq=int(answer["next"]),
        lost=int(answer["lost"]),
    )
