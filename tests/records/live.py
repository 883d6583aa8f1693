"""Live observations and a promotion for tests: an engine of known step times and acceptance."""

import numpy as np

from tabletune.core.controller.observation import BatchTotals, CellTimes, LiveObservation
from tabletune.core.controller.promoted import Promoted
from tabletune.core.counts import SurvivalCounts
from tabletune.core.step_time import StepTimeEstimate
from tabletune.core.surface import StepTimeSurface

MAX_NUM_SEQS = 16
LENGTHS = (0, 1, 2, 4)
GOOD = (0.9, 0.8, 0.7, 0.62)
BAD = (0.2, 0.05, 0.01, 0.003)


def step_time_s(batch_size: int, draft_length: int) -> float:
    """What a step of the engine takes."""
    return 0.010 + 0.0002 * batch_size + 0.0009 * draft_length + 0.0003 * batch_size * draft_length


def promoted(lengths: tuple[int, ...] = (4,) * MAX_NUM_SEQS, version: str = "first") -> Promoted:
    cells = {
        (b, k): StepTimeEstimate(step_time_s(b, k), 0.0, 0.0, 80, 0)
        for b in (1, 2, 4, 8, 12, MAX_NUM_SEQS)
        for k in LENGTHS
    }
    return Promoted(
        lengths=lengths,
        usable=LENGTHS,
        surface=StepTimeSurface.from_cells(cells),
        prior=SurvivalCounts([1000.0] * 4, [1000.0 * s for s in GOOD], 1000.0).faded(1 / 3),
        envelope=lambda b, k: not (k == 4 and b > 12) or lengths[b - 1] == 4,
        max_num_seqs=MAX_NUM_SEQS,
        max_draft_length=4,
        forbidden_transitions=((1, 4),),
        version=version,
    )


def observed(
    second: int, batch_size: int, length: int, survival: tuple[float, ...], seed: int = 0
) -> LiveObservation:
    """One second of steady decoding."""
    rng = np.random.default_rng((seed, second))
    taken_s = step_time_s(batch_size, length) * float(rng.normal(1.0, 0.002))
    steps = int(1 / taken_s)
    requests = steps * batch_size if length else 0
    drafted = tuple(requests if i < length else 0 for i in range(4))
    accepted: list[int] = []
    left, before = requests, 1.0
    for i in range(4):
        left = int(rng.binomial(left, survival[i] / before)) if i < length else 0
        before = survival[i]
        accepted.append(left)
    tokens = steps * batch_size + sum(accepted)
    return LiveObservation(
        from_s=float(second),
        to_s=second + 1.0,
        steps=steps,
        last_batch_size=batch_size,
        waiting_requests=0,
        cells=(CellTimes(batch_size, length, steps, taken_s, 0.01),),
        batches=(
            BatchTotals(batch_size, steps, steps * taken_s, tokens, steps, steps * taken_s, tokens),
        ),
        request_steps=requests,
        offered_through=drafted,
        drafted_through=drafted,
        accepted_through=tuple(accepted),
    )
