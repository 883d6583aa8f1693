"""In-engine profile: step times T(b, K) from real requests, read from the plugin's seam.

For each batch size b, b requests stay open while the engine itself walks through the draft
lengths in short blocks, again and again, so that every length sees the same context, the
same temperature and the same neighbours on the host. A step counts for its cell only when
exactly b requests decoded, none prefilled, and both the drafts it verified and the drafts it
made had the cell's length; the first steps after a switch are dropped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tabletune.core.context import at_context
from tabletune.core.step_time import StepTimeEstimate, estimate_step_time
from tabletune.measure.api import EngineApi
from tabletune.measure.clock import Clock
from tabletune.measure.load import ClosedLoop, LoadRequest
from tabletune.measure.progress import Progress
from tabletune.measure.steps import StepBatch, StepReader
from tabletune.records.step_profile import Cell

StepKind = Literal["constant", "mixed"]

#: Steps dropped after a switch: the length chosen at step t is verified at t+1, and one more
#: step passes before both halves of the pipeline run at the new length.
SETTLE_STEPS = 3
#: A burst of requests is left when they have generated this share of their tokens: some are
#: luckier than the mean, and end before it.
BURST_SHARE = 0.75


@dataclass(frozen=True)
class ProfileOptions:
    """How well and how long to measure.

    Attributes:
        block_steps: counted steps per length and block.
        min_samples, max_samples: per cell.
        relative_halfwidth: a cell is tight enough when its interval's half width is below
            this fraction of its step time.
        cell_budget_s: a cell may take this long before it is given up as too uncertain.
        step_kind: ``constant`` or ``mixed``, see records/step_profile.py.
    """

    step_kind: StepKind
    block_steps: int = 12
    min_samples: int = 24
    max_samples: int = 120
    relative_halfwidth: float = 0.02
    cell_budget_s: float = 8.0
    ready_timeout_s: float = 60.0


@dataclass
class CellSamples:
    """What was collected for one cell so far."""

    samples_s: list[float] = field(default_factory=list[float])
    scheduled_tok: list[float] = field(default_factory=list[float])
    context_tok: list[float] = field(default_factory=list[float])

    def add(self, batch: StepBatch, counted: np.ndarray, context_tok: np.ndarray) -> None:
        self.samples_s += batch.interval_s[counted].tolist()
        self.scheduled_tok += batch.scheduled_tok[counted].astype(float).tolist()
        self.context_tok += context_tok[counted].tolist()

    def estimate(
        self, kind: StepKind, reference_tok: float, slope_s_per_tok: float | None = None
    ) -> StepTimeEstimate | None:
        """The cell's step time at `reference_tok` of context; None before the second sample.

        slope_s_per_tok: by which it is brought there; None: the cell's own (core/context.py).
        """
        if len(self.samples_s) < 2:
            return None
        samples: np.ndarray = np.asarray(self.samples_s)
        if len(self.context_tok) == len(self.samples_s):
            samples = at_context(samples, self.context_tok, reference_tok, slope_s_per_tok)
        return estimate_step_time(samples, kind=kind)

    def cell(self, batch_size: int, draft_length: int, problem: str = "") -> Cell:
        """The record of this cell; rejected when `problem` says why."""
        status = "rejected" if problem and self.samples_s else "measured"
        if not self.samples_s:
            status, problem = "not_measured", problem or "no step of this kind was seen"
        return Cell(
            batch_size=batch_size,
            draft_length=draft_length,
            samples_s=tuple(self.samples_s),
            scheduled_tok=float(np.mean(self.scheduled_tok)) if self.scheduled_tok else 0.0,
            context_tok=float(np.mean(self.context_tok)) if self.context_tok else 0.0,
            sample_context_tok=tuple(round(c, 1) for c in self.context_tok)
            if len(self.context_tok) == len(self.samples_s)
            else (),
            status=status,
            problem=problem,
        )


def counted_steps(
    batch: StepBatch, batch_size: int, draft_length: int, kind: StepKind
) -> np.ndarray:
    """Which steps count for the cell: bool[n].

    Both the verified and the chosen length are the cell's, in this step and in the
    `SETTLE_STEPS` − 1 before it, with the batch unchanged and no prefill among them, nor in
    the step after it, whose launch this step's interval may hold (see qualify_cells.py).
    """
    steady = (
        (batch.batch_size == batch_size)
        & (batch.prefill_requests == 0)
        & (batch.draft_length == draft_length)
        & (batch.verified_length == draft_length)
        & np.isfinite(batch.interval_s)
        & (batch.interval_s > 0)
    )
    if kind == "constant":
        steady &= batch.drafted_tok == batch_size * draft_length
    counted = steady.copy()
    counted[:-1] &= batch.prefill_requests[1:] == 0
    for lag in range(1, SETTLE_STEPS):
        counted[lag:] &= steady[:-lag]
        counted[:lag] = False
    return counted


class BatchProfiler:
    """Measures the cells of one batch size after another on one running engine."""

    def __init__(
        self,
        api: EngineApi,
        model: str,
        requests: Sequence[LoadRequest],
        prompt_tok: float,
        reference_tok: float,
        options: ProfileOptions,
        clock: Clock,
        progress: Progress,
    ) -> None:
        self._api, self._model, self._requests = api, model, list(requests)
        self._prompt_tok, self._reference_tok, self._options = prompt_tok, reference_tok, options
        self._clock, self._progress = clock, progress

    def measure(
        self,
        batch_size: int,
        lengths: Iterable[int],
        start: Mapping[int, CellSamples] | None = None,
        slope: Callable[[int], float] | None = None,
    ) -> dict[int, CellSamples]:
        """Measure all `lengths` at `batch_size`, until each is tight or its budget is spent.

        Args:
            start: samples kept from before, to which new ones are added.
            slope: draft length → seconds per step, request and token of context, as far as
                other batch sizes have told it; a cell is tight by that, for it is judged by it.
        """
        slopes = {} if slope is None else {k: batch_size * slope(k) for k in lengths}
        cells = {k: CellSamples() for k in lengths}
        for length, kept in (start or {}).items():
            cells[length] = kept
        deadline = self._clock.now_s() + self._options.cell_budget_s * len(cells)
        while self._wanted(cells, slopes) and self._clock.now_s() < deadline:
            self._burst(batch_size, cells, deadline, slopes)
        return cells

    def _burst(
        self,
        batch_size: int,
        cells: Mapping[int, CellSamples],
        deadline: float,
        slopes: Mapping[int, float],
    ) -> None:
        """Samples from one set of requests, until they are about to end."""
        reader = StepReader(self._api)
        # Once requests end and are replaced, their mean context is no longer known.
        most_generated = (
            BURST_SHARE * min(r.max_tokens for r in self._requests)
            if self._options.step_kind == "constant"
            else np.inf
        )
        with ClosedLoop(self._api.address, self._model, self._requests, batch_size) as loop:
            try:
                generated = self._wait_ready(reader, loop, batch_size)
                while (wanted := self._wanted(cells, slopes)) and generated < most_generated:
                    if self._clock.now_s() > deadline or loop.done.is_set():
                        break
                    batch = self._round(reader, wanted)
                    generated = self._collect(batch, batch_size, cells, generated)
            finally:
                if not loop.done.is_set():
                    self._api.pin(None)

    def _wanted(self, cells: Mapping[int, CellSamples], slopes: Mapping[int, float]) -> list[int]:
        options, wanted = self._options, list[int]()
        for length, cell in cells.items():
            count = len(cell.samples_s)
            if count >= options.max_samples:
                continue
            estimate = (
                cell.estimate(options.step_kind, self._reference_tok, slopes.get(length))
                if count >= options.min_samples
                else None
            )
            if estimate is None or estimate.relative_halfwidth > options.relative_halfwidth:
                wanted.append(length)
        return wanted

    def _round(self, reader: StepReader, lengths: list[int]) -> StepBatch:
        """One block of each length, walked through by the engine itself."""
        block = self._options.block_steps + SETTLE_STEPS
        self._api.pin_schedule([(length, block) for length in lengths])
        return reader.read_steps(block * len(lengths), self._clock, self._options.ready_timeout_s)

    def _wait_ready(self, reader: StepReader, loop: ClosedLoop, batch_size: int) -> float:
        """Wait until all requests decode; for short requests, until they have at least once.

        Returns:
            Tokens generated until then, per request.
        """
        generated = 0.0
        deadline = self._clock.now_s() + self._options.ready_timeout_s
        while self._clock.now_s() < deadline:
            batch = reader.read_new()
            generated += float(batch.output_tok.sum()) / batch_size
            if np.any((batch.batch_size == batch_size) & (batch.prefill_requests == 0)):
                return generated
            if loop.done.is_set():
                raise LoadStoppedError(batch_size, loop.counts.last_error)
            self._clock.sleep_s(0.02)
        raise LoadStoppedError(
            batch_size,
            f"no step with {batch_size} decoding requests within "
            f"{self._options.ready_timeout_s:.0f} s; last error: {loop.counts.last_error!r}",
        )

    def _collect(
        self,
        batch: StepBatch,
        batch_size: int,
        cells: Mapping[int, CellSamples],
        generated: float,
    ) -> float:
        emitted = generated + np.cumsum(batch.output_tok) / batch_size
        if self._options.step_kind == "constant":
            context = self._prompt_tok + emitted
        else:  # requests of all ages, replaced as they end: about half of them is behind them
            mean_length = float(np.mean([r.max_tokens for r in self._requests]))
            context = np.full(len(batch), self._prompt_tok + mean_length / 2)
        for length, cell in cells.items():
            counted = counted_steps(batch, batch_size, length, self._options.step_kind)
            cell.add(batch, counted, context)
        return float(emitted[-1]) if len(emitted) else generated


class LoadStoppedError(RuntimeError):
    """The load that should have kept the engine busy ended or never got going."""

    def __init__(self, batch_size: int, found: str) -> None:
        self.batch_size, self.found = batch_size, found
        super().__init__(
            f"could not keep {batch_size} requests decoding: {found}; see the engine's log, and "
            "whether max_num_seqs and the KV cache hold that many requests"
        )
