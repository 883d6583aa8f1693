"""The step log while it grows."""

from __future__ import annotations

import numpy as np

from tabletune.simulate.result import StepLog

Shape = tuple[int, int, int, int, int, int]
"""(batch size, decode requests, draft length, verified length, prompt tokens, waiting)."""


class StepRecorder:
    """Lists of one entry per step, in the order of `StepLog`'s columns."""

    def __init__(self) -> None:
        self._start_s: list[float] = []
        self._step_time_s: list[float] = []
        self._tokens: list[int] = []
        self._shape: list[Shape] = []

    def one(self, start_s: float, step_time_s: float, tokens: int, shape: Shape) -> None:
        """A step. shape: (batch size, decode requests, draft length, verified length, prompt
        tokens, waiting requests)."""
        self._start_s.append(start_s)
        self._step_time_s.append(step_time_s)
        self._tokens.append(tokens)
        self._shape.append(shape)

    def many(
        self,
        start_s: list[float],
        step_time_s: list[float],
        tokens: list[int],
        shape: Shape,
    ) -> None:
        """Steps of one shape."""
        self._start_s += start_s
        self._step_time_s += step_time_s
        self._tokens += tokens
        self._shape += [shape] * len(tokens)

    def log(self) -> StepLog:
        shapes = np.array(self._shape, dtype=np.int64).reshape(-1, 6)
        batch_size, decode, draft, verified, prefill, waiting = shapes.T
        return StepLog(
            start_s=np.array(self._start_s, dtype=np.float64),
            step_time_s=np.array(self._step_time_s, dtype=np.float64),
            batch_size=batch_size,
            decode_requests=decode,
            draft_length=draft,
            verified_length=verified,
            prefill_tok=prefill,
            tokens=np.array(self._tokens, dtype=np.int64),
            waiting_requests=waiting,
        )
