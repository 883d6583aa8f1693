"""A whole profile: the grid, its refinement, repeated cells, and what is given up."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tabletune.core.context import TELLING_BATCH_SIZES, CellKey, request_slopes
from tabletune.core.plausibility import PlausibilityLimits, plausibility
from tabletune.core.step_time import StepTimeEstimate
from tabletune.measure.clock import Clock
from tabletune.measure.profile_in_engine import CellSamples, StepKind
from tabletune.measure.progress import Progress
from tabletune.records.step_profile import Cell

Estimates = Mapping[CellKey, StepTimeEstimate]


class BatchMeasurer(Protocol):
    """What measures the cells of one batch size, by any method."""

    def measure(
        self,
        batch_size: int,
        lengths: Iterable[int],
        start: Mapping[int, CellSamples] | None,
        slope: Callable[[int], float] | None = None,
    ) -> dict[int, CellSamples]: ...


@dataclass
class ProfileState:
    """Cells measured so far; what a later run can go on from."""

    cells: dict[CellKey, CellSamples] = field(default_factory=dict[CellKey, CellSamples])

    def estimates(self, kind: StepKind, reference_tok: float) -> dict[CellKey, StepTimeEstimate]:
        """The step time at `reference_tok` of context of every cell that has one."""
        per_request = self.request_slopes()
        found = {
            (b, k): cell.estimate(kind, reference_tok, b * per_request(k))
            for (b, k), cell in self.cells.items()
        }
        return {key: estimate for key, estimate in found.items() if estimate is not None}

    def slope(self) -> Callable[[int], float] | None:
        """What `BatchMeasurer.measure` takes; None while few batch sizes have told it."""
        if len({b for b, _ in self.cells}) < TELLING_BATCH_SIZES:
            return None
        return self.request_slopes()

    def request_slopes(self) -> Callable[[int], float]:
        """Draft length → seconds per step, request and token of context, from all cells whose
        samples' contexts are known (core/context.py)."""
        known = {
            key: (cell.samples_s, cell.context_tok)
            for key, cell in self.cells.items()
            if len(cell.context_tok) == len(cell.samples_s)
        }
        return request_slopes(known)

    def records(self, problems: Mapping[CellKey, str]) -> tuple[Cell, ...]:
        """The cells as records, in order; those with a problem are rejected."""
        return tuple(
            cell.cell(*key, problem=problems.get(key, ""))
            for key, cell in sorted(self.cells.items())
        )

    @classmethod
    def from_records(cls, cells: Iterable[Cell]) -> "ProfileState":
        """Go on from recorded cells, whatever their status."""
        state = cls()
        for cell in cells:
            count = len(cell.samples_s)
            context_tok = list(cell.sample_context_tok) or [cell.context_tok] * count
            state.cells[cell.batch_size, cell.draft_length] = CellSamples(
                list(cell.samples_s), [cell.scheduled_tok] * count, context_tok
            )
        return state


@dataclass(frozen=True)
class ProfilePlan:
    """What to measure.

    Attributes:
        grid: batch sizes of the first pass.
        lengths: draft lengths by batch size; only pairs inside the envelope.
        refine: from the estimates so far, further batch sizes worth measuring.
        reference_tok: context length at which step times are stated.
        limits: what makes a cell unusable.
        budget_s: after this time no new batch size is begun.
        repeats: how often an unusable cell is measured again.
    """

    grid: tuple[int, ...]
    lengths: Callable[[int], tuple[int, ...]]
    refine: Callable[[Estimates], list[int]]
    reference_tok: float
    limits: PlausibilityLimits
    budget_s: float
    repeats: int = 2


def run_profile(
    measurer: BatchMeasurer,
    plan: ProfilePlan,
    state: ProfileState,
    kind: StepKind,
    clock: Clock,
    progress: Progress,
    checkpoint: Callable[[ProfileState], None],
) -> dict[CellKey, str]:
    """Fill `state` with the plan's cells; the problems that remain, by cell.

    Largest batch sizes come first: what does not fit shows early. `checkpoint` is called
    after each batch size, so that a run that ends there can go on from it.
    """
    begun_s = clock.now_s()

    def spent() -> bool:
        return clock.now_s() - begun_s > plan.budget_s and bool(state.cells)

    def measure(stage: str, batch_sizes: Iterable[int], again: set[CellKey] | None = None) -> None:
        sizes = sorted(set(batch_sizes), reverse=True)
        progress.start(stage, len(sizes))
        for number, batch_size in enumerate(sizes):
            lengths = [
                k
                for k in plan.lengths(batch_size)
                if (batch_size, k) not in state.cells or (again and (batch_size, k) in again)
            ]
            if not lengths or spent():
                continue
            progress.advance(number, f"batch size {batch_size}, draft lengths {lengths}")
            kept = {
                k: state.cells[batch_size, k] for k in lengths if (batch_size, k) in state.cells
            }
            slope = state.slope()
            for length, cell in measurer.measure(batch_size, lengths, kept, slope).items():
                state.cells[batch_size, length] = cell
            checkpoint(state)

    measure("profile", plan.grid)
    measure(
        "profile where curves cross or jump", plan.refine(state.estimates(kind, plan.reference_tok))
    )
    for _ in range(plan.repeats):
        problems = _problems(state, kind, plan)
        if not problems or spent():
            break
        stage = f"profile: {len(problems)} uncertain or implausible cells again"
        measure(stage, {b for b, _ in problems}, again=set(problems))
    left = sorted(b for b in plan.grid if any((b, k) not in state.cells for k in plan.lengths(b)))
    if left and spent():
        progress.say(
            f"the profile's {plan.budget_s:.0f} s are over: not measured at batch sizes {left}"
        )
    return _problems(state, kind, plan)


def _problems(state: ProfileState, kind: StepKind, plan: ProfilePlan) -> dict[CellKey, str]:
    estimates = state.estimates(kind, plan.reference_tok)
    problems = dict(plausibility(estimates, plan.limits))
    for key in state.cells.keys() - estimates.keys():
        problems[key] = "no step of this kind was seen"
    return problems
