"""What a simulation gives: its steps and its requests as columns, and figures from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tabletune.core.words import Cell, FloatArray

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepLog:
    """One entry per step: float64[n] or int64[n].

    batch_size: requests scheduled, prefills included. decode_requests: those that decoded,
    requests that had already ended included. draft_length: chosen (and drafted) in the step;
    verified_length: chosen one step earlier. tokens: given out at the end of the step.
    """

    start_s: FloatArray
    step_time_s: FloatArray
    batch_size: Ints
    decode_requests: Ints
    draft_length: Ints
    verified_length: Ints
    prefill_tok: Ints
    tokens: Ints
    waiting_requests: Ints

    @property
    def end_s(self) -> FloatArray:
        return self.start_s + self.step_time_s


@dataclass(frozen=True, eq=False)
class RequestLog:
    """One entry per request in order of arrival. NaN: not yet. preempted: how often."""

    arrival_s: FloatArray
    scheduled_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    prompt_tok: Ints
    output_tok: Ints
    given_tok: Ints
    kind: Ints
    preempted: Ints

    @property
    def finished(self) -> npt.NDArray[np.bool_]:
        return np.isfinite(self.finish_s)


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """end_s: simulated seconds; the last step may end later."""

    end_s: float
    steps: StepLog
    requests: RequestLog

    def _given_by(self, at_s: FloatArray) -> FloatArray:
        """Output tokens until each time; a step gives its tokens evenly while it runs."""
        given = np.concatenate(([0.0], np.cumsum(self.steps.tokens)))
        times = np.stack((self.steps.start_s, self.steps.end_s), axis=1).ravel()
        if times.size == 0:
            return np.zeros(at_s.size)
        return np.interp(at_s, times, np.stack((given[:-1], given[1:]), axis=1).ravel())

    def throughput_tok_s(self, from_s: float = 0.0, until_s: float | None = None) -> float:
        """Output tokens per second; a step counts by the share of it inside the window."""
        until = self.end_s if until_s is None else until_s
        given = self._given_by(np.array([from_s, until]))
        return float(given[1] - given[0]) / (until - from_s)

    def throughput_windows_tok_s(self, width_s: float) -> FloatArray:
        """The same for consecutive windows, float64[n]; a last part window is left out."""
        count = int(self.end_s / width_s + 1e-9)
        edges = np.arange(count + 1, dtype=np.float64) * width_s
        return np.diff(self._given_by(edges)) / width_s

    def ttft_s(self, from_s: float = 0.0) -> FloatArray:
        """Arrival to first token of the requests that arrived from `from_s` on, float64[n]."""
        log = self.requests
        chosen = (log.arrival_s >= from_s) & np.isfinite(log.first_token_s)
        return (log.first_token_s - log.arrival_s)[chosen]

    def tpot_s(self, from_s: float = 0.0) -> FloatArray:
        """Mean time per output token after the first, of finished requests with more than
        one that arrived from `from_s` on, float64[n]."""
        log = self.requests
        chosen = (log.arrival_s >= from_s) & log.finished & (log.output_tok > 1)
        spans = (log.finish_s - log.first_token_s)[chosen]
        return spans / (log.output_tok[chosen] - 1)

    def cell_steps(self, from_s: float = 0.0) -> dict[Cell, int]:
        """How many steps ran at each (batch size, chosen draft length)."""
        chosen = self.steps.start_s >= from_s
        cells = np.stack((self.steps.batch_size, self.steps.draft_length))[:, chosen]
        pairs, counts = np.unique(cells, axis=1, return_counts=True)
        return {(int(b), int(k)): int(n) for b, k, n in zip(*pairs, counts.tolist(), strict=True)}

    def mean_batch_size(self, from_s: float = 0.0) -> float:
        """Mean over time of the batch size, while steps ran; 0 without a step."""
        chosen = self.steps.start_s >= from_s
        times = self.steps.step_time_s[chosen]
        return float(self.steps.batch_size[chosen] @ times / times.sum()) if times.size else 0.0


def percentiles(values: FloatArray, of: tuple[float, ...] = (50, 90, 99)) -> dict[float, float]:
    """The percentiles of a column; NaN where it is empty."""
    if values.size == 0:
        return dict.fromkeys(of, float("nan"))
    return dict(zip(of, np.percentile(values, of).tolist(), strict=True))
