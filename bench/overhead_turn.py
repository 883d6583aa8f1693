"""A loop with a controller that has something to decide, for measuring one turn of it."""

import random
from dataclasses import dataclass

from bench.overhead_steps import K_MAX, PlainScheduler, steps
from tabletune.core.controller.promoted import Promoted
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.counts import SurvivalCounts
from tabletune.core.step_time import StepTimeEstimate
from tabletune.core.surface import StepTimeSurface
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.live.loop import Loop
from tabletune_vllm.live.words import Target, Times
from tabletune_vllm.seam.step_hooks import hook

STEPS_A_SECOND = 100


@dataclass
class Clock:
    """Moves when told to."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def adapting_loop(batch: int) -> tuple[Loop, PlainScheduler, Clock]:
    """A loop in mode adapt whose table never drafts, although drafting would pay."""
    clock, scheduler = Clock(), PlainScheduler(batch)
    facts = EngineFacts("0.32.0", "V1", "cpu", "eagle3", True, batch, K_MAX, "bench", 0.0)
    runtime = hook(scheduler, facts, 65_536, clock)
    sizes = sorted({1, 2, 4, 8, 16, 32, 64, 128, 192, batch})
    cells = {
        (b, k): StepTimeEstimate(t := 4e-3 + 1e-5 * b * (k + 1), t, t, 80, 0)
        for b in sizes
        for k in range(K_MAX + 1)
    }
    table = (0,) * (batch + 1)
    promoted = Promoted(
        lengths=table[1:],
        usable=tuple(range(K_MAX + 1)),
        surface=StepTimeSurface.from_cells(cells),
        prior=SurvivalCounts([400] * K_MAX, [320, 240, 160, 100], 400),
        envelope=lambda b, k: True,
        max_num_seqs=batch,
        max_draft_length=K_MAX,
        version="bench",
    )
    lengths = frozenset(range(K_MAX + 1))
    loop = Loop(runtime, ControllerSettings(), 1, None)
    at = Times(0.0, 0.0)
    target = Target("bench", "", table, lengths, frozenset(), lambda b, k: True, promoted)
    loop.take(target, at)
    loop.set_mode("adapt", "", at)
    return loop, scheduler, clock


def serve_a_second(scheduler: PlainScheduler, clock: Clock) -> Times:
    """Steps of many batch sizes within one second of the clock."""
    rng = random.Random(int(clock.now_s))
    batches = [rng.randint(1, 256) for _ in range(4)]
    for batch in batches:
        for output, model_output in steps("mixed", batch, STEPS_A_SECOND // 4):
            clock.now_s += 1.0 / STEPS_A_SECOND
            scheduler.update_from_output(output, model_output)
    return Times(clock.now_s, clock.now_s)
