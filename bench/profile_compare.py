"""How far two profiling methods lie from a long reference: the arithmetic of profile_methods."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tabletune.core.context import CellKey
from tabletune.core.step_time import StepTimeEstimate
from tabletune.measure.metrics import parse_counters
from tabletune.measure.profile_client import decode_steps
from tabletune.measure.profile_in_engine import CellSamples, StepKind
from tabletune.measure.profile_run import ProfileState

#: Observed once for each engine step that gave output (vllm/v1/metrics/loggers.py).
ENGINE_STEPS = re.compile(r"^vllm:iteration_tokens_total_count\S* (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Measured:
    """One method's cells.

    kind: how samples are read, see records/step_profile.py.
    reference_tok: context length at which its step times are stated.
    """

    kind: StepKind
    reference_tok: float
    cells: Mapping[CellKey, CellSamples]

    def step_time_s(self, key: CellKey, reference_tok: float | None = None) -> float:
        """The cell's step time at a context length, by default the method's own."""
        at_tok = self.reference_tok if reference_tok is None else reference_tok
        estimate = self._estimate(key, at_tok)
        if estimate is None:
            raise ValueError(f"cell {key} has fewer than two samples")
        return estimate.step_time_s

    def halfwidth(self, key: CellKey) -> float:
        """Half the 95 % interval over the step time."""
        estimate = self._estimate(key, self.reference_tok)
        return float("inf") if estimate is None else estimate.relative_halfwidth

    def _estimate(self, key: CellKey, at_tok: float) -> StepTimeEstimate | None:
        """As a run judges it: by the slope of all cells (core/context.py)."""
        batch_size, length = key
        slope = batch_size * self._request_slopes(length)
        return self.cells[key].estimate(self.kind, at_tok, slope)

    @cached_property
    def _request_slopes(self) -> Callable[[int], float]:
        return ProfileState(dict(self.cells)).request_slopes()


def compare(rounds: Sequence[Measured], reference: Measured) -> dict[str, Any]:
    """Signed relative errors of every cell in every round, what they come to, and spreads."""
    rows: list[dict[str, Any]] = []
    for number, method in enumerate(rounds):
        for key in sorted(method.cells):
            found_s = method.step_time_s(key)
            true_s = reference.step_time_s(key, method.reference_tok)
            cell = method.cells[key]
            rows.append(
                {
                    "round": number,
                    "batch_size": key[0],
                    "draft_length": key[1],
                    "step_time_s": round(found_s, 6),
                    "reference_s": round(true_s, 6),
                    "relative_error": round(found_s / true_s - 1, 4),
                    "relative_halfwidth": round(method.halfwidth(key), 4),
                    "sample_count": len(cell.samples_s),
                    "scheduled_tok": round(float(np.mean(cell.scheduled_tok)), 2),
                }
            )
    sizes = np.abs([row["relative_error"] for row in rows])
    return {
        "median_error": round(float(np.median(sizes)), 4),
        "rms_error": round(float(np.sqrt(np.mean(sizes**2))), 4),
        "largest_error": round(float(np.max(sizes)), 4),
        "median_halfwidth": round(float(np.median([r["relative_halfwidth"] for r in rows])), 4),
        "cells": rows,
    }


def reference_cells(reference: Measured, first_half: Mapping[CellKey, int]) -> dict[str, Any]:
    """The reference's cells, and how far its two halves lie apart: the floor of any error.

    first_half: how many of a cell's samples were taken before the other methods ran.
    """
    rows: list[dict[str, Any]] = []
    for key, cell in sorted(reference.cells.items()):
        count = first_half[key]
        halves_s = [
            Measured(reference.kind, reference.reference_tok, {key: half}).step_time_s(key)
            for half in (_part(cell, slice(count)), _part(cell, slice(count, None)))
        ]
        rows.append(
            {
                "batch_size": key[0],
                "draft_length": key[1],
                "step_time_s": round(reference.step_time_s(key), 6),
                "second_half_over_first": round(halves_s[1] / halves_s[0], 4),
                "relative_halfwidth": round(reference.halfwidth(key), 4),
                "sample_count": len(cell.samples_s),
                "scheduled_tok": round(float(np.mean(cell.scheduled_tok)), 2),
            }
        )
    apart = np.abs([row["second_half_over_first"] - 1 for row in rows])
    return {
        "median_difference_of_halves": round(float(np.median(apart)), 4),
        "largest_difference_of_halves": round(float(np.max(apart)), 4),
        "cells": rows,
    }


def _part(cell: CellSamples, part: slice) -> CellSamples:
    return CellSamples(cell.samples_s[part], cell.scheduled_tok[part], cell.context_tok[part])


def by_engine_steps(pages: Sequence[str], cell: CellSamples, batch_size: int) -> CellSamples:
    """The client's samples divided by the engine's own number of steps instead.

    pages: the metrics pages that the client read while it measured the cell, in order: before
    and after the first call, then before and after each long and each short one.
    """
    counts = [parse_counters(page) for page in pages]
    engine_steps = [_engine_steps(page) for page in pages]
    samples_s: list[float] = []
    for index, sample_s in enumerate(cell.samples_s):
        begun, long, rest, short = range(2 + 4 * index, 6 + 4 * index)
        by_requests = decode_steps(counts[long] - counts[begun], batch_size)
        by_requests -= decode_steps(counts[short] - counts[rest], batch_size)
        by_engine = engine_steps[long] - engine_steps[begun]
        by_engine -= engine_steps[short] - engine_steps[rest]
        samples_s.append(sample_s * by_requests / by_engine)
    return CellSamples(samples_s, list(cell.scheduled_tok), list(cell.context_tok))


def _engine_steps(page: str) -> float:
    return sum(float(value) for value in ENGINE_STEPS.findall(page))
