"""The drives of a qualification: what is done to the engine, one function each."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np

from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Progress
from tabletune.measure.qualify_cells import view_steps
from tabletune.measure.qualify_drive import Driver, Load
from tabletune.measure.qualify_options import QualifyOptions
from tabletune.measure.qualify_walk import all_switches, back_and_forth, rotated, schedule
from tabletune.measure.steps import StepBatch

#: A joining request generates so many tokens, so that others soon join in its place.
JOIN_TOK = 4
PROBE_STEPS = 8
#: Steps per length when a suspicious cell or switch is driven again.
RECHECK_SWITCHES = 6
RECHECK_SWITCH_STEPS = 4


@dataclass(frozen=True)
class Drives:
    """What every drive needs."""

    driver: Driver
    requests: Sequence[LoadRequest]
    lengths: tuple[int, ...]
    max_num_seqs: int
    progress: Progress

    def probe(self) -> float:
        """Seconds of a step of the largest batch at the longest length."""
        longest = self.lengths[-1]
        with self._doing(f"the first {self.max_num_seqs} requests", self.max_num_seqs) as load:
            self.driver.wait_ready(load, self.max_num_seqs)
            batch = self.driver.walk(load, [(longest, PROBE_STEPS)])
        view = view_steps(batch)
        usable = batch.interval_s[view.steady & (batch.draft_length == longest)]
        return float(np.median(usable)) if len(usable) else 0.1

    def walk_all_switches(self, options: QualifyOptions) -> None:
        """Every ordered pair of lengths, at a small, a middle and the largest batch."""
        pairs = schedule(all_switches(self.lengths), options.block_steps)
        for size in options.walk_batch_sizes:
            what = f"all lengths and switches at batch size {size}"
            with self._doing(what, size) as load:
                self.driver.wait_ready(load, size)
                self.driver.walk(load, pairs, options.walk_repeats)

    def resume_after_zero(self, options: QualifyOptions) -> StepBatch | None:
        """Each length, then 0, then the length again; None without a length 0."""
        drafting = [k for k in self.lengths[::-1] if k > 0]
        if 0 not in self.lengths or not drafting:
            return None
        size = max(1, self.max_num_seqs // 2)
        walk = [k for length in drafting for k in (length, 0, length)]
        with self._doing(f"length 0 and back at batch size {size}", size) as load:
            self.driver.wait_ready(load, size)
            return self.driver.walk(load, schedule(walk, options.resume_steps))

    def join_decodes(self, options: QualifyOptions) -> StepBatch | None:
        """Short new requests join while others decode; None when only one request fits."""
        size = max(1, self.max_num_seqs // 2)
        joining = min(4, self.max_num_seqs - size)
        if joining < 1:
            return None
        short = [replace(request, max_tokens=JOIN_TOK) for request in self.requests]
        block = 4
        repeat = max(1, options.join_steps // (block * len(self.lengths)))
        with self._doing(f"prefills joining {size} decodes", size) as load:
            self.driver.wait_ready(load, size)
            with self.driver.open_load(short, joining):
                return self.driver.walk(load, schedule(rotated(self.lengths, 1), block), repeat)

    def shrink(self, options: QualifyOptions) -> None:
        """From the largest batch to one request, walking through all lengths at each size."""
        sizes = sorted(options.sweep_batch_sizes, reverse=True)
        with self._doing("a shrinking batch", sizes[0]) as load:
            for turn, size in enumerate(sizes):
                load.shrink(size)
                self._tell(f"shrinking batch, {size} requests", turn, len(sizes))
                self.driver.wait_ready(load, size, patience=0.1 if turn else 1.0)
                walk = schedule(rotated(self.lengths, turn), options.sweep_block_steps)
                self.driver.walk(load, walk)

    def recheck(
        self,
        cells: Sequence[tuple[int, int]],
        switches: Sequence[tuple[int, int, int]],
        cell_steps: int,
    ) -> None:
        """Drive (batch size, length) for `cell_steps` and (batch size, old, new) again."""
        sizes = sorted({b for b, *_ in [*cells, *switches]}, reverse=True)
        with self._doing("suspicious steps again", sizes[0]) as load:
            for turn, size in enumerate(sizes):
                load.shrink(size)
                self._tell(f"again with {size} requests", turn, len(sizes))
                self.driver.wait_ready(load, size, patience=0.1 if turn else 1.0)
                lengths = [k for b, k in cells if b == size]
                pairs = [(old, new) for b, old, new in switches if b == size]
                walk = schedule(lengths, cell_steps)
                switching = back_and_forth(pairs, RECHECK_SWITCHES)
                self.driver.walk(load, walk + schedule(switching, RECHECK_SWITCH_STEPS))

    def _doing(self, what: str, size: int) -> AbstractContextManager[Load]:
        self.driver.doing = what
        self.progress.start(f"qualify: {what}", 1.0)
        self._tell(f"{size} requests")
        # Not length 0 while the prompts are computed: some drafters keep a state of their own.
        self.driver.call(lambda: self.driver.api.pin(self.lengths[-1]))
        return self.driver.open_load(self.requests, size)

    def _tell(self, note: str, turn: int = 0, turns: int = 1) -> None:
        """Let the driver's walks advance the stage, of which this is one of several turns."""

        def tell(share: float) -> None:
            self.progress.advance((turn + share) / turns, note)

        self.driver.tell = tell
