"""Nightjar-style: a bandit per batch size, in bins, with a price on switching drafting on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tabletune.simulate.policy import Observation, Steps


@dataclass(frozen=True)
class BanditOptions:
    """context_width: batch sizes are rounded up to a multiple of it; each is a context.
    bin_steps: observed steps of a context for which its arm is locked.
    switch_cost_s: (batch size) -> seconds lost when drafting starts again after K=0; None: 0,
        as in an engine that keeps the drafter in step while it does not draft.
    """

    context_width: int = 8
    bin_steps: int = 10
    switch_cost_s: Callable[[int], float] | None = None


@dataclass(slots=True)
class _Context:
    """arm: locked for the bin. block, bin: numbered from 1; block j has 2^(j-1) bins."""

    arm: int
    seen: int = 0
    block: int = 1
    bin: int = 1
    loss: dict[int, tuple[float, int]] = field(default_factory=dict[int, tuple[float, int]])


class SwitchingBanditPolicy:
    """In bin i of a block it explores (any arm, evenly) with chance 1/i; otherwise it takes
    argmin of the mean seconds per token, plus switch cost / K where drafting would start anew.

    Arms never tried in a context count as 0 seconds per token, the shorter first.
    """

    wants_steps = True

    def __init__(
        self, longest: int, rng: np.random.Generator, options: BanditOptions | None = None
    ) -> None:
        self._longest, self._rng = longest, rng
        self._options = options or BanditOptions()
        self._contexts: dict[int, _Context] = {}

    def context_of(self, batch_size: int) -> int:
        """The batch size that stands for its context."""
        width = self._options.context_width
        return -(-batch_size // width) * width

    def _context(self, batch_size: int, last_draft_length: int) -> _Context:
        key = self.context_of(batch_size)
        if key not in self._contexts:
            context = self._contexts[key] = _Context(arm=0)
            context.arm = self._pick(context, key, last_draft_length)
        return self._contexts[key]

    def draft_length(self, batch_size: int, observation: Observation) -> int:
        return self._context(batch_size, observation.last_draft_length).arm

    def steady_steps(self, observation: Observation) -> int:
        left = (self._options.bin_steps - c.seen for c in self._contexts.values())
        return max(1, min(left, default=1))

    def observe(self, steps: Steps) -> None:
        context = self._context(steps.batch_size, steps.draft_length)
        if not steps.prefill_tok and steps.decode_requests:
            loss, count = context.loss.get(steps.verified_length, (0.0, 0))
            loss += float(sum(steps.step_time_s / steps.tokens))
            context.loss[steps.verified_length] = (loss, count + steps.count)
        context.seen += steps.count
        if context.seen >= self._options.bin_steps:
            context.seen = 0
            context.bin += 1
            if context.bin > 2 ** (context.block - 1):
                context.block, context.bin = context.block + 1, 1
            key = self.context_of(steps.batch_size)
            context.arm = self._pick(context, key, steps.draft_length)

    def _pick(self, context: _Context, batch_size: int, last_draft_length: int) -> int:
        if self._rng.random() < 1 / context.bin:
            return int(self._rng.integers(self._longest + 1))
        return self.greedy(context.loss, batch_size, last_draft_length)

    def greedy(
        self, loss: dict[int, tuple[float, int]], batch_size: int, last_draft_length: int
    ) -> int:
        """The arm with the least mean loss. loss: {K: (sum of seconds per token, steps)}."""
        cost_s = self._options.switch_cost_s

        def price(k: int) -> float:
            total, count = loss.get(k, (0.0, 0))
            starting = cost_s is not None and last_draft_length == 0 and k > 0
            switch_s = cost_s(batch_size) / k if cost_s is not None and starting else 0.0
            return (total / count if count else 0.0) + switch_s

        return min(range(self._longest + 1), key=lambda k: (price(k), k))
