"""Step times of a profile's cells, as the core estimates them, for the heat map and its table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tabletune.core.plausibility import PlausibilityLimits
from tabletune.core.step_time import estimate_step_time
from tabletune.core.words import FloatArray
from tabletune.records.step_profile import Cell, Profile

CellState = Literal["good", "uncertain", "unused"]


@dataclass(frozen=True)
class CellTime:
    """One cell: its time where there is one, how sure it is, and why it is not used."""

    batch_size: int
    draft_length: int
    state: CellState
    step_time_s: float | None
    relative_halfwidth: float
    sample_count: int
    problem: str


def cell_times(profile: Profile) -> dict[tuple[int, int], CellTime]:
    """By (batch size, draft length), every cell of the profile."""
    samples = profile.samples_at_context()
    return {
        (cell.batch_size, cell.draft_length): _cell_time(profile, cell, samples)
        for cell in profile.cells
    }


def _cell_time(
    profile: Profile, cell: Cell, samples: Mapping[tuple[int, int], FloatArray]
) -> CellTime:
    b, k = cell.batch_size, cell.draft_length
    if cell.status != "measured":
        words = "not measured" if cell.status == "not_measured" else "rejected"
        return CellTime(b, k, "unused", None, 0.0, len(cell.samples_s), cell.problem or words)
    estimate = estimate_step_time(samples[b, k], profile.step_kind)
    width, most = estimate.relative_halfwidth, PlausibilityLimits().max_relative_halfwidth
    if estimate.step_time_s <= 0:
        problem = cell.problem or "its step time is not positive"
        return CellTime(b, k, "unused", None, width, estimate.sample_count, problem)
    problem, state = cell.problem, "good"
    if width > most:
        state = "uncertain"
        problem = problem or f"its interval is ±{width:.0%}, wider than ±{most:.0%}"
    return CellTime(b, k, state, estimate.step_time_s, width, estimate.sample_count, problem)
