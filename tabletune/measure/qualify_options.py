"""How thoroughly an engine is qualified, and how long that may take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

StepKind = Literal["constant", "mixed"]

#: Below this step time a full sweep over all batch sizes and repeated switches are cheap.
FAST_STEP_S = 0.03


@dataclass(frozen=True)
class QualifyOptions:
    """What to drive and when to complain.

    Attributes:
        step_kind: ``constant`` for model drafters (each request carries K drafts), ``mixed``
            where the drafter may propose fewer (n-gram, suffix).
        walk_batch_sizes: where every length and every switch is tried, in any order.
        sweep_batch_sizes: visited by a shrinking batch while the length changes.
        block_steps: steps per length in the walk through all switches.
        walk_repeats: how often each switch is tried at each of `walk_batch_sizes`.
        sweep_block_steps: steps per length at each batch size of the sweep.
        resume_steps: steps before, during and after the length 0.
        join_steps: steps during which short new requests join.
        rechecks: how often a suspicious cell or switch is driven again before it fails.
        recheck_steps: steps of a suspicious cell each time.
        stall_factor: a cell's step may take this many times that of a cell with at least as
            many requests, drafts and tokens. Without its graph a step takes two to four times
            as long; a busy host alone was seen to make it 1.5 times.
        top_factor: the same where no such cell exists, against a smaller one scaled by tokens.
        switch_factor, switch_extra_s: a switch is slow when its worst step exceeds its cell's
            median by both.
        hang_s: no step for so long, while requests are open, is a hang.
        check_output: compare greedy output; off for engines with synthetic acceptance.
        output_prompts, output_tok: prompts compared and tokens generated for each.
    """

    step_kind: StepKind
    walk_batch_sizes: tuple[int, ...]
    sweep_batch_sizes: tuple[int, ...]
    block_steps: int = 9
    walk_repeats: int = 3
    sweep_block_steps: int = 8
    resume_steps: int = 20
    join_steps: int = 120
    rechecks: int = 2
    recheck_steps: int = 24
    stall_factor: float = 1.8
    top_factor: float = 2.0
    switch_factor: float = 3.0
    switch_extra_s: float = 0.005
    hang_s: float = 30.0
    check_output: bool = True
    output_prompts: int = 8
    output_tok: int = 40

    @staticmethod
    def for_step_time(
        step_time_s: float,
        max_num_seqs: int,
        lengths: Sequence[int],
        step_kind: StepKind,
        check_output: bool = True,
        sweep_budget_s: float = 50.0,
    ) -> "QualifyOptions":
        """Options that take 60 to 90 s whatever the engine's pace.

        Args:
            step_time_s: a step of the largest batch at the longest length.
            sweep_budget_s: with steps below `FAST_STEP_S` all batch sizes are swept when they
                fit in this time, else an even choice of them.
        """
        walk = tuple(sorted({1, max(1, max_num_seqs // 2), max_num_seqs}))
        hang_s = max(30.0, 100 * step_time_s)
        if step_time_s <= FAST_STEP_S:
            block = QualifyOptions.sweep_block_steps
            # Smaller batches and shorter lengths take less: on the mean about 0.6 of the most.
            most = int(sweep_budget_s / (block * len(lengths) * 0.6 * step_time_s))
            return QualifyOptions(
                step_kind,
                walk_batch_sizes=walk,
                sweep_batch_sizes=spread(max_num_seqs, max(most, 16), walk),
                hang_s=hang_s,
                check_output=check_output,
            )
        return QualifyOptions(
            step_kind,
            walk_batch_sizes=walk,
            sweep_batch_sizes=spread(max_num_seqs, 6, walk),
            block_steps=4,
            walk_repeats=1,
            sweep_block_steps=5,
            resume_steps=6,
            join_steps=16,
            rechecks=1,
            recheck_steps=8,
            hang_s=hang_s,
            check_output=check_output,
            output_prompts=4,
            output_tok=20,
        )


def spread(largest: int, most: int, always: Sequence[int] = ()) -> tuple[int, ...]:
    """At most about `most` batch sizes from 1 to `largest`, denser at small ones.

    All of them when they fit. `always` are among them.
    """
    if largest <= most:
        return tuple(range(1, largest + 1))
    # The square root is between even and geometric spacing: small batch sizes differ most.
    points = np.linspace(1.0, float(np.sqrt(largest)), most) ** 2
    return tuple(sorted({round(float(p)) for p in points} | {b for b in always if b <= largest}))
