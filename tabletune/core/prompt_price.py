"""What a step that holds a prompt takes longer than one that does not, priced alike for all.

On an H200 a step with a prompt takes 12 to 17 ms longer than one without, at every draft length:
the host launches its kernels one by one. How long that takes depends on what else the host does,
and differs by a quarter from window to window of one and the same policy; at 128 requests this is
most of what such windows differ by (bench/results: `prompt_steps`). So a window tells what its
steps without a prompt take, all windows of a load together what a prompt adds:

    extra = sum of (seconds - steps · plain step) / sum of steps with a prompt
    rate  = tokens / (steps · plain step + steps with a prompt · extra)

A draft length has an extra time of its own (its steps with prompts may lack a graph, say) as far
as its windows differ from all by more than they differ among themselves: it is shrunk to that of
all (positive part of James and Stein 1961). What a policy has of such steps stays its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PromptedWindow:
    """A window's time in two parts.

    tokens, seconds, steps: of the whole window. prompt_steps: those that hold a prompt.
    plain_step_s: mean time of the steps that neither hold a prompt nor come right before one (a
    prompt is prepared during the step before it). length: the one draft length of its steps, None
    where they had several.
    """

    tokens: float
    seconds: float
    steps: float
    prompt_steps: float
    plain_step_s: float
    length: int | None

    @property
    def over_s(self) -> float:
        """Seconds beyond plain steps, for each step with a prompt."""
        return (self.seconds - self.steps * self.plain_step_s) / self.prompt_steps


@dataclass(frozen=True)
class PromptPrice:
    """extra_s: of a step with a prompt. of_length: the same by draft length, where windows told.
    residual: standard deviation of the extra time from window to window of a length, as a share
    of it; 0 without such steps, and where too few windows tell."""

    extra_s: float
    of_length: dict[int, float]
    residual: float

    def of(self, length: int | None) -> float:
        """Extra seconds of a step with a prompt at a draft length; of all where it is None."""
        return self.extra_s if length is None else self.of_length.get(length, self.extra_s)


def price(windows: Sequence[PromptedWindow]) -> PromptPrice:
    """What prompts cost over all windows of a load; nothing where no window has any.

    >>> windows = [PromptedWindow(800, 1.1, 100, 10, 0.01, k) for k in (1, 2)]
    >>> round(price(windows).extra_s, 6)
    0.01
    """
    told = [window for window in windows if window.prompt_steps > 0]
    if not told:
        return PromptPrice(0.0, {}, 0.0)
    prompts = np.array([window.prompt_steps for window in told], dtype=np.float64)
    over_s = np.array([window.over_s for window in told], dtype=np.float64)
    whole_s = max(0.0, float(np.average(over_s, weights=prompts)))
    lengths = [window.length for window in told]
    groups = {k: np.array([n == k for n in lengths]) for k in set(lengths) if k is not None}
    own_s = {k: float(np.average(over_s[g], weights=prompts[g])) for k, g in groups.items()}
    middle_s = np.array([whole_s if k is None else own_s[k] for k in lengths])
    freedom = len(told) - len(groups)
    # One window a length tells nothing of what windows differ by: then all cost the same.
    variance_s2 = float(((over_s - middle_s) ** 2).sum() / freedom) if freedom > 0 else np.inf
    of_length: dict[int, float] = {}
    for length, group in groups.items():
        apart_s = own_s[length] - whole_s
        noise_s2 = variance_s2 / int(group.sum())
        kept = max(0.0, 1.0 - noise_s2 / apart_s**2) if apart_s else 0.0
        of_length[length] = max(0.0, whole_s + kept * apart_s)
    return PromptPrice(
        extra_s=whole_s,
        of_length=dict(sorted(of_length.items())),
        residual=float(np.sqrt(variance_s2)) / whole_s if whole_s and freedom > 0 else 0.0,
    )


def rate_at(window: PromptedWindow, found: PromptPrice) -> float:
    """Tokens per second of a window whose steps with prompts take as long as the price says."""
    extra_s = window.prompt_steps * found.of(window.length)
    return window.tokens / (window.steps * window.plain_step_s + extra_s)


def prices_drawn(
    windows: Sequence[PromptedWindow], rng: np.random.Generator, draws: int
) -> Iterable[PromptPrice]:
    """Prices of the windows drawn anew, within each draft length, so many times."""
    groups: dict[int | None, list[PromptedWindow]] = {}
    for window in windows:
        groups.setdefault(window.length, []).append(window)
    for _ in range(draws):
        again: list[PromptedWindow] = []
        for group in groups.values():
            again += [group[int(i)] for i in rng.integers(0, len(group), len(group))]
        yield price(again)
