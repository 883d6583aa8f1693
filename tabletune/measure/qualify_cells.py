"""Step times per (batch size, draft length) while an engine is qualified. Pure.

The steps of the first drive are round 0; each later round drives only what looked
suspicious. A fault of the engine shows in every round, a busy host only in some: a suspect
is judged by its fastest round, and what it is compared with by all rounds together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tabletune.measure.steps import StepBatch

#: A median of fewer steps is not used.
MIN_SAMPLES = 2
#: StepBatch.graph_mode of a step that ran without a graph.
GRAPH_NONE = 0

CellKey = tuple[int, int]


@dataclass(frozen=True)
class StepView:
    """What follows from neighbouring steps; every array is of shape [n].

    Attributes:
        in_force: int64, the length chosen in the step before, whose drafts this step
            verifies; −1 where the step before is not in the record.
        decode_only: bool, no prefill in this step and a usable interval. A step just before one
            with a prefill is left out too: with asynchronous scheduling the engine launches the
            next step before it takes in this one's outcome, so this one's interval holds the
            launch of a prefill, which takes some 20 ms without a graph.
        same_batch: bool, the step before is recorded, decoded only, and had as many requests.
        steady: bool, also chosen like the two steps before, so that the step both verifies
            and drafts at its length and the pipeline has settled.
    """

    in_force: np.ndarray
    decode_only: np.ndarray
    same_batch: np.ndarray
    steady: np.ndarray


def view_steps(batch: StepBatch) -> StepView:
    """Relate each step to those before it."""
    count = len(batch)
    follows = np.zeros(count, dtype=bool)
    follows[1:] = np.diff(batch.seq) == 1
    in_force = np.full(count, -1, dtype=np.int64)
    in_force[1:] = np.where(follows[1:], batch.draft_length[:-1], -1)
    usable = np.isfinite(batch.interval_s) & (batch.interval_s > 0) & (batch.batch_size > 0)
    decode_only = usable & (batch.prefill_requests == 0)
    decode_only[:-1] &= ~(follows[1:] & (batch.prefill_requests[1:] > 0))
    same_batch = decode_only & follows
    same_batch[1:] &= decode_only[:-1] & (batch.batch_size[1:] == batch.batch_size[:-1])
    same_length = same_batch & (in_force == batch.draft_length)
    steady = same_length.copy()
    steady[1:] &= same_length[:-1]
    return StepView(in_force, decode_only, same_batch, steady)


@dataclass
class CellSteps:
    """Steady steps of one cell: per round, seconds, scheduled tokens and graph modes."""

    times_s: list[np.ndarray] = field(default_factory=list[np.ndarray])
    tokens: list[np.ndarray] = field(default_factory=list[np.ndarray])
    graph_modes: list[np.ndarray] = field(default_factory=list[np.ndarray])

    @property
    def count(self) -> int:
        return sum(len(times) for times in self.times_s)

    @property
    def best_s(self) -> float:
        """The smallest of the rounds' medians, in seconds."""
        enough = [t for t in self.times_s if len(t) >= MIN_SAMPLES] or [self.pooled_s]
        return float(min(np.median(times) for times in enough))

    @property
    def pooled_s(self) -> np.ndarray:
        return np.concatenate(self.times_s)

    @property
    def pooled_tok(self) -> np.ndarray:
        return np.concatenate(self.tokens)

    @property
    def median_s(self) -> float:
        """The median of all rounds together, in seconds."""
        return float(np.median(self.pooled_s))

    @property
    def ungraphed(self) -> bool:
        """Whether the engine says that most of these steps ran without a graph."""
        return bool(np.mean(np.concatenate(self.graph_modes) == GRAPH_NONE) > 0.5)

    @property
    def median_tok(self) -> float:
        return float(np.median(self.pooled_tok))

    def best_up_to_s(self, tokens: float) -> float:
        """As `best_s`, of the steps with at most so many scheduled tokens."""
        parts = [t[k <= tokens] for t, k in zip(self.times_s, self.tokens, strict=True)]
        enough = [part for part in parts if len(part) >= MIN_SAMPLES]
        return float(min(np.median(p) for p in enough)) if enough else self.best_s

    def median_from_s(self, tokens: float) -> float:
        """As `median_s`, of the steps with at least so many scheduled tokens; else infinite."""
        times = self.pooled_s[self.pooled_tok >= tokens]
        return float(np.median(times)) if len(times) >= MIN_SAMPLES else np.inf


def collect_cells(rounds: Sequence[StepBatch]) -> dict[CellKey, CellSteps]:
    """The steady steps of each cell seen in any round."""
    cells = dict[CellKey, CellSteps]()
    for batch in rounds:
        steady = batch.select(view_steps(batch).steady)
        keys = np.stack([steady.batch_size, steady.draft_length], axis=1)
        for size, length in np.unique(keys, axis=0).tolist():
            mine = (steady.batch_size == size) & (steady.draft_length == length)
            cell = cells.setdefault((size, length), CellSteps())
            cell.times_s.append(steady.interval_s[mine])
            cell.tokens.append(steady.scheduled_tok[mine])
            cell.graph_modes.append(steady.graph_mode[mine])
    return {key: cell for key, cell in cells.items() if cell.count >= MIN_SAMPLES}


@dataclass(frozen=True)
class CellStatistics:
    """One cell in a result file: median step time in seconds, and how many steady steps."""

    batch_size: int
    draft_length: int
    median_s: float
    samples: int


@dataclass(frozen=True)
class SlowestStep:
    """The slowest decode step at one batch size, over the median of its cell.

    `second_over_median` is the next slowest: a single hiccup of the host shows only in the
    first. A step during a switch is compared with the slower of its two cells.
    """

    batch_size: int
    slowest_over_median: float
    second_over_median: float
    slowest_s: float
    previous_length: int
    draft_length: int
    steps: int


def cell_statistics(cells: Mapping[CellKey, CellSteps]) -> tuple[CellStatistics, ...]:
    """By draft length, then batch size."""
    order = sorted(cells, key=lambda key: (key[1], key[0]))
    return tuple(CellStatistics(b, k, cells[b, k].median_s, cells[b, k].count) for b, k in order)


def expected_step_s(
    batch: StepBatch, cells: Mapping[CellKey, CellSteps], by_tokens: bool
) -> np.ndarray:
    """float64[n]: what each step should take: the slower of the cells it verifies and drafts in.

    NaN where one of the two is not known. `by_tokens`: scaled up for steps with more scheduled
    tokens than is usual in the cell (drafters that propose for some requests only).
    """
    view = view_steps(batch)
    expected = np.full(len(batch), np.nan)
    medians = {key: (cell.median_s, max(cell.median_tok, 1.0)) for key, cell in cells.items()}
    for i in np.flatnonzero(view.same_batch).tolist():
        size = int(batch.batch_size[i])
        ends = [medians.get((size, int(k))) for k in (view.in_force[i], batch.draft_length[i])]
        known = [end for end in ends if end is not None]
        if len(known) == 2:
            median_s, tokens = max(known)
            more = float(batch.scheduled_tok[i]) / tokens if by_tokens else 1.0
            expected[i] = median_s * max(1.0, more)
    return expected


def slowest_steps(
    rounds: Sequence[StepBatch], cells: Mapping[CellKey, CellSteps], by_tokens: bool = False
) -> tuple[SlowestStep, ...]:
    """Per batch size, its slowest decode step over the cell's median."""
    found = dict[int, list[tuple[float, float, int, int]]]()
    for batch in rounds:
        ratio = batch.interval_s / expected_step_s(batch, cells, by_tokens)
        in_force = view_steps(batch).in_force
        for i in np.flatnonzero(np.isfinite(ratio)).tolist():
            entry = (float(ratio[i]), float(batch.interval_s[i]))
            lengths = (int(in_force[i]), int(batch.draft_length[i]))
            found.setdefault(int(batch.batch_size[i]), []).append((*entry, *lengths))
    result = list[SlowestStep]()
    for size, steps in sorted(found.items()):
        ordered = sorted(steps, reverse=True)
        worst, second = ordered[0], ordered[min(1, len(ordered) - 1)]
        result.append(SlowestStep(size, worst[0], second[0], *worst[1:], len(steps)))
    return tuple(result)
