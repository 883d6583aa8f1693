"""What the controller sees: engine steps as columns, and their aggregate over one tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tabletune.core.errors import CoreError
from tabletune.core.words import FloatArray

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Version of the observation's dict; another one is refused.
OBSERVATION_FORMAT = 1


@dataclass(frozen=True, eq=False)
class StepColumns:
    """n consecutive engine steps, oldest first, as the plugin's ring or the simulator has them.

    time_s, step_time_s: float64[n], end of the step and seconds since the end before.
    batch_size: int64[n], prefills included. draft_length: chosen in the step, drafted at its
    end. verified_length: in force for the drafts verified in it; -1 unknown.
    prefill_requests: of the batch. request_steps: decode requests that could carry a draft,
    without those whose drafts a grammar made invalid. drafted_requests: requests that carried
    one. output_tok, waiting_requests: int64[n]. undisturbed: bool[n], no reader in the way and
    not after idle. drafted_through, accepted_through: int64[n, K_max], requests per position.
    """

    time_s: FloatArray
    step_time_s: FloatArray
    batch_size: Ints
    draft_length: Ints
    verified_length: Ints
    prefill_requests: Ints
    request_steps: Ints
    drafted_requests: Ints
    output_tok: Ints
    waiting_requests: Ints
    undisturbed: Bools
    drafted_through: Ints
    accepted_through: Ints

    def __len__(self) -> int:
        return len(self.time_s)


@dataclass(frozen=True)
class CellTimes:
    """Steady steps of one cell within a tick.

    step_time_s: their mean with far steps pulled in. log_sd: robust standard deviation of
    the log of one step's time.
    """

    batch_size: int
    draft_length: int
    count: int
    step_time_s: float
    log_sd: float


@dataclass(frozen=True)
class BatchTotals:
    """All undisturbed steps of one batch size within a tick: how many, their seconds and
    tokens; how many of them were steady; seconds and tokens of those without a prefill."""

    batch_size: int
    steps: int
    seconds: float
    output_tok: int
    steady: int
    decode_s: float
    decode_tok: int


@dataclass(frozen=True)
class Stall:
    """A step far above its cell's step time."""

    batch_size: int
    draft_length: int
    step_time_s: float


def _sd(value: object) -> float:
    found = float(value) if isinstance(value, int | float) else -1.0
    if not 0 <= found < np.inf:
        raise ValueError(f"a standard deviation of {value!r}")
    return found


@dataclass(frozen=True)
class LiveObservation:
    """The aggregate of one tick; all that the controller ever sees, so that replay is exact.

    from_s, to_s: the tick on the engine's clock. steps: recorded in it. last_batch_size: of
    the newest step, 0 without any. waiting_requests: in the newest step.
    request_steps: decode request-steps whose draft length was known and at least 1;
    offered_through, drafted_through, accepted_through: per position, over those steps.
    stretch_sd: see stretch.py; None where the tick does not tell.
    """

    from_s: float
    to_s: float
    steps: int
    last_batch_size: int
    waiting_requests: int
    cells: tuple[CellTimes, ...]
    batches: tuple[BatchTotals, ...]
    request_steps: int
    offered_through: tuple[int, ...]
    drafted_through: tuple[int, ...]
    accepted_through: tuple[int, ...]
    stalls: tuple[Stall, ...] = ()
    stretch_sd: float | None = None

    @property
    def busy_s(self) -> float:
        """Seconds spent in steps."""
        return sum(b.seconds for b in self.batches)

    @classmethod
    def nothing(cls, from_s: float, to_s: float, max_draft_length: int) -> LiveObservation:
        """A tick without a step."""
        zeros = (0,) * max_draft_length
        return cls(from_s, to_s, 0, 0, 0, (), (), 0, zeros, zeros, zeros)

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values; `from_dict` gives back an equal observation."""
        return {
            "format": OBSERVATION_FORMAT,
            "from_s": self.from_s,
            "to_s": self.to_s,
            "steps": self.steps,
            "last_batch_size": self.last_batch_size,
            "waiting_requests": self.waiting_requests,
            "cells": [
                [c.batch_size, c.draft_length, c.count, c.step_time_s, c.log_sd] for c in self.cells
            ],
            "batches": [
                [b.batch_size, b.steps, b.seconds, b.output_tok, b.steady, b.decode_s, b.decode_tok]
                for b in self.batches
            ],
            "request_steps": self.request_steps,
            "offered_through": list(self.offered_through),
            "drafted_through": list(self.drafted_through),
            "accepted_through": list(self.accepted_through),
            "stalls": [[s.batch_size, s.draft_length, s.step_time_s] for s in self.stalls],
            "stretch_sd": self.stretch_sd,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LiveObservation:
        """The inverse of `to_dict`; records from before `stretch_sd` are read too.

        Raises CoreError for another format or a missing entry.
        """
        if values.get("format") != OBSERVATION_FORMAT:
            raise CoreError(
                "observation format",
                str(OBSERVATION_FORMAT),
                values.get("format"),
                "replay it with the version that recorded it",
            )
        apart = values.get("stretch_sd")
        try:
            return cls(
                from_s=float(values["from_s"]),
                to_s=float(values["to_s"]),
                steps=int(values["steps"]),
                last_batch_size=int(values["last_batch_size"]),
                waiting_requests=int(values["waiting_requests"]),
                cells=tuple(CellTimes(*cell) for cell in values["cells"]),
                batches=tuple(BatchTotals(*batch) for batch in values["batches"]),
                request_steps=int(values["request_steps"]),
                offered_through=tuple(values["offered_through"]),
                drafted_through=tuple(values["drafted_through"]),
                accepted_through=tuple(values["accepted_through"]),
                stalls=tuple(Stall(*stall) for stall in values["stalls"]),
                stretch_sd=None if apart is None else _sd(apart),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CoreError(
                "observation", "the entries that `to_dict` writes", repr(error), "record it again"
            ) from error
