"""How wrong a table gets by wrong survival and step times, and by how little was measured.

Everything is computed, nothing is run: the truth is the step-time surface of the profile that
was recorded on one H200 (all its cells and samples) and a given survival; a table is built from
something worse and valued by the truth. loss[b]: the share of goodput that the table's length
loses against the best length at batch size b, which is also the best fixed length there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tabletune.core.errors import CoreError
from tabletune.core.step_time import estimate_step_time
from tabletune.core.surface import StepTimes, StepTimeSurface
from tabletune.core.table import BuildOptions, build_table
from tabletune.core.words import FloatArray
from tabletune.records.step_profile import Cell, Profile
from tabletune.simulate.scenarios.kinds import CHAT, CODE, MATH
from tabletune.simulate.scenarios.tables import GridStepTimes

SIZE = 128
LIMITS = (0.01, 0.03, 0.05)
SURVIVALS: dict[str, tuple[float, ...]] = {
    "mid": (0.72, 0.5, 0.34, 0.23),
    "code": CODE.survival,
    "chat": CHAT.survival,
    "math": MATH.survival,
}


@dataclass(frozen=True, eq=False)
class Truth:
    """times: float64[SIZE+1, K+1] in seconds. survival: S_1 … S_K. max_merge_loss: how tables
    are built, see `BuildOptions`; None is the paper's rule."""

    profile: Profile
    times: FloatArray
    survival: tuple[float, ...]
    max_merge_loss: float | None = None

    @property
    def tokens(self) -> FloatArray:
        return tokens_of(self.survival)

    def loss(self, lengths: Sequence[int]) -> FloatArray:
        """float64[SIZE], of a table [b-1]."""
        goodput = self.tokens / self.times[1:]
        chosen = goodput[np.arange(SIZE), np.asarray(lengths)]
        return 1 - chosen / np.nanmax(goodput, axis=1)


def tokens_of(survival: Sequence[float]) -> FloatArray:
    """E(0) … E(K)."""
    return np.cumsum([1.0, *survival])


def truth_of(profile: Profile, survival: Sequence[float]) -> Truth:
    """The truth by a whole profile."""
    surface = surface_from(profile.cells, profile)
    assert surface is not None
    times = np.full((SIZE + 1, max(profile.lengths) + 1), np.nan)
    for b in range(1, SIZE + 1):
        for k in surface.draft_lengths:
            times[b, k] = surface.step_time_s(b, k)
    return Truth(profile, times, tuple(survival))


def surface_from(cells: Sequence[Cell], profile: Profile) -> StepTimeSurface | None:
    """The surface of some cells; None where too little is left to make one."""
    samples = profile.model_copy(update={"cells": tuple(cells)}).samples_at_context()
    estimates = {
        key: estimate_step_time(each, kind=profile.step_kind)
        for key, each in samples.items()
        if len(each) >= 2
    }
    try:
        return StepTimeSurface.from_cells(estimates, None)
    except CoreError:
        return None


def table_of(surface: StepTimes, tokens: FloatArray, truth: Truth) -> tuple[int, ...]:
    """The table, [b-1], with the pipeline's other options."""
    uncertainty = surface.relative_uncertainty if isinstance(surface, StepTimeSurface) else None
    options = BuildOptions(uncertainty=uncertainty, max_merge_loss=truth.max_merge_loss)
    return build_table(surface, tokens, SIZE, options).draft_lengths


def scaled_survival(survival: Sequence[float], error: float) -> tuple[float, ...]:
    """Believed survival where each conditional acceptance is wrong by a factor 1 + error.

    >>> [round(s, 4) for s in scaled_survival([0.5, 0.25], 0.1)]
    [0.55, 0.3025]
    """
    before = [1.0, *survival[:-1]]
    conditional = [s / b if b else 0.0 for s, b in zip(survival, before, strict=True)]
    return tuple(np.cumprod([min(1.0, c * (1 + error)) for c in conditional]).tolist())


def by_survival_error(truth: Truth, errors: Sequence[float]) -> list[dict[str, float]]:
    """Worst and mean loss where conditional acceptance is believed wrong by each error."""
    surface = GridStepTimes(truth.times)
    return [
        _row(truth, e, table_of(surface, tokens_of(scaled_survival(truth.survival, e)), truth))
        for e in errors
    ]


def by_drafting_error(truth: Truth, errors: Sequence[float]) -> list[dict[str, float]]:
    """The same where what drafting adds to a step, T(b, K) - T(b, 0), is wrong by each error."""
    plain = truth.times[:, :1]
    rows = []
    for e in errors:
        believed = GridStepTimes(plain + (truth.times - plain) * (1 + e))
        rows.append(_row(truth, e, table_of(believed, truth.tokens, truth)))
    return rows


def by_cell_noise(
    truth: Truth, spreads: Sequence[float], draws: int, rng: np.random.Generator
) -> list[dict[str, float]]:
    """The same where every profiled cell is wrong at random, lognormal with each spread."""
    rows = []
    for spread in spreads:
        tables = []
        for _ in range(draws):
            cells = [_scaled(c, float(np.exp(rng.normal(0, spread)))) for c in truth.profile.cells]
            tables.append(_table_or_none(cells, truth, truth.tokens))
        rows.append({"error": spread, **_over_draws(truth, tables)})
    return rows


def thinned(
    profile: Profile, batch_sizes: Sequence[int], samples: int, rng: np.random.Generator
) -> list[Cell]:
    """Cells of some batch sizes only, each with so many of its samples, drawn at random."""
    found: list[Cell] = []
    for cell in profile.cells:
        if cell.batch_size not in batch_sizes or cell.status != "measured":
            continue
        count = min(samples, len(cell.samples_s))
        picks = np.sort(rng.choice(len(cell.samples_s), count, replace=False))
        contexts = cell.sample_context_tok
        update = {
            "samples_s": tuple(cell.samples_s[i] for i in picks),
            "sample_context_tok": tuple(contexts[i] for i in picks) if contexts else (),
        }
        found.append(cell.model_copy(update=update))
    return found


def measured_survival(
    survival: Sequence[float], request_steps: int, rng: np.random.Generator
) -> tuple[float, ...]:
    """Survival as counted in so many request-steps at the longest length."""
    reached = np.diff([1.0, *survival, 0.0]) * -1  # P(exactly i accepted)
    counts = rng.multinomial(request_steps, reached / reached.sum())
    return tuple((counts[::-1].cumsum()[::-1][1:] / request_steps).tolist())


def by_effort(
    truth: Truth,
    batch_sizes: Sequence[int],
    samples: int,
    request_steps: int,
    draws: int,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Loss over draws of a smaller measurement, and what it takes.

    step_time_s: seconds of pure step time, without boots, switches and ramps.
    """
    tables = []
    for _ in range(draws):
        cells = thinned(truth.profile, batch_sizes, samples, rng)
        believed = measured_survival(truth.survival, request_steps, rng)
        tables.append(_table_or_none(cells, truth, tokens_of(believed)))
    profiling_s = sum(float(np.nansum(truth.times[b])) for b in batch_sizes) * samples
    counting_s = request_steps / 64 * float(truth.times[64, -1])
    return {
        "batch_sizes": len(batch_sizes),
        "samples": samples,
        "request_steps": request_steps,
        "step_time_s": round(profiling_s + counting_s, 2),
        **_over_draws(truth, tables),
    }


def limits_crossed(
    rows: Sequence[dict[str, float]], limits: Sequence[float] = LIMITS
) -> dict[str, Any]:
    """For each limit of the worst loss: the errors nearest to 0, below and above, that reach
    it; None where none of those tried does."""
    found: dict[str, Any] = {}
    for limit in limits:
        reached = [row["error"] for row in rows if row["worst"] >= limit]
        below = [e for e in reached if e < 0]
        above = [e for e in reached if e >= 0]
        found[f"{limit:g}"] = [max(below, default=None), min(above, default=None)]
    return found


def _row(truth: Truth, error: float, lengths: Sequence[int]) -> dict[str, float]:
    loss = truth.loss(lengths)
    return {"error": error, "worst": _round(loss.max()), "mean": _round(loss.mean())}


def _over_draws(truth: Truth, tables: Sequence[tuple[int, ...] | None]) -> dict[str, float]:
    """Over draws: the mean and 95th percentile of the worst loss, and the mean loss. A draw
    without a table counts as a loss of everything."""
    losses = [np.ones(SIZE) if t is None else truth.loss(t) for t in tables]
    worst = np.array([loss.max() for loss in losses])
    return {
        "worst": _round(worst.mean()),
        "worst_p95": _round(np.percentile(worst, 95)),
        "mean": _round(np.mean([loss.mean() for loss in losses])),
        "without_table": sum(t is None for t in tables),
    }


def _table_or_none(
    cells: Sequence[Cell], truth: Truth, tokens: FloatArray
) -> tuple[int, ...] | None:
    surface = surface_from(cells, truth.profile)
    if surface is None:
        return None
    try:
        return table_of(surface, tokens, truth)
    except CoreError:
        return None


def _scaled(cell: Cell, factor: float) -> Cell:
    return cell.model_copy(update={"samples_s": tuple(s * factor for s in cell.samples_s)})


def _round(value: float | np.floating[Any]) -> float:
    return round(float(value), 5)


def with_survival(truth: Truth, survival: Sequence[float]) -> Truth:
    """The same step times under another survival."""
    return replace(truth, survival=tuple(survival))


def builders(truth: Truth) -> dict[str, dict[str, float]]:
    """What tables lose that know everything: by the paper's rule, which merges narrow ranges
    at any price, and by merging only what costs at most 1 %."""
    surface = surface_from(truth.profile.cells, truth.profile)
    assert surface is not None
    found: dict[str, dict[str, float]] = {}
    for name, limit in (("merge at any price", None), ("merge up to 1 %", 0.01)):
        lengths = table_of(surface, truth.tokens, replace(truth, max_merge_loss=limit))
        loss = truth.loss(lengths)
        at = int(loss.argmax()) + 1
        found[name] = {"worst": _round(loss.max()), "at": at, "mean": _round(loss.mean())}
    return found
