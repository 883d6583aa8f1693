"""How draft lengths are chosen in the simulator: the interface, and the simple policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tabletune.core.survival import SurvivalCounts
from tabletune.core.words import FloatArray, IntArray
from tabletune.simulate.errors import SimulationError

FOREVER = 1 << 60
"""`steady_steps` of a policy that never changes its mind."""


@dataclass(slots=True)
class Observation:
    """What the scheduler knows when it chooses. One object is reused: copy what you keep.

    now_s: when the step is scheduled. step: how many were scheduled before it.
    prefill_requests: of the batch, those that process their prompt.
    last_draft_length: what was chosen for the step before; 0 at first.
    """

    now_s: float = 0.0
    step: int = 0
    prefill_requests: int = 0
    waiting_requests: int = 0
    context_tok: int = 0
    last_draft_length: int = 0


@dataclass(slots=True)
class Steps:
    """One finished step, or several in a row that were all alike.

    start_s: when the first began. step_time_s, tokens: float64[n], int64[n], per step.
    batch_size: requests scheduled, prefills included. decode_requests: those that decoded and
        were still wanted (with asynchronous scheduling some had ended by then).
    draft_length: chosen for the steps, and drafted in them. verified_length: what they
        verified, chosen one step earlier.
    drafted_through, accepted_through: int64[n, verified_length], requests whose draft had at
        least i guesses, and whose first i guesses were accepted, per step.
    """

    start_s: float
    step_time_s: FloatArray
    tokens: IntArray
    batch_size: int
    decode_requests: int
    prefill_requests: int
    prefill_tok: int
    context_tok: int
    draft_length: int
    verified_length: int
    drafted_through: IntArray
    accepted_through: IntArray

    @property
    def count(self) -> int:
        return len(self.step_time_s)

    def survival_counts(self, max_draft_length: int) -> SurvivalCounts:
        """What these steps tell about survival, over `max_draft_length` positions."""
        request_steps = self.decode_requests * self.count if self.verified_length else 0
        missing = max_draft_length - self.verified_length
        return SurvivalCounts(
            [*self.drafted_through.sum(axis=0), *[0] * missing],
            [*self.accepted_through.sum(axis=0), *[0] * missing],
            request_steps,
            [request_steps] * self.verified_length + [0] * missing,
        )


class Policy(Protocol):
    """Chooses the draft length of every step.

    wants_steps: whether `observe` is to be called at all; it costs time.
    draft_length: for a step of `batch_size` requests (prefills included, as vLLM looks its
        table up). The guesses are drafted in this step and verified in the next.
    steady_steps: for how many steps, this one included, the answer stays the same if the
        batch size does, whatever happens; at least 1. The engine then runs them at once. Asked
        right after `draft_length`, with the same observation.
    observe: called with every finished step, in order. With asynchronous scheduling the
        length of step t+1 is chosen before step t is observed, as in vLLM.
    """

    wants_steps: bool

    def draft_length(self, batch_size: int, observation: Observation) -> int: ...
    def steady_steps(self, observation: Observation) -> int: ...
    def observe(self, steps: Steps) -> None: ...


class TablePolicy:
    """A table: the draft length follows from the batch size alone.

    >>> TablePolicy.from_rows([(1, 4, 3), (5, 8, 0)]).draft_length(5, Observation())
    0
    """

    wants_steps = False

    def __init__(self, draft_lengths: Sequence[int]) -> None:
        """draft_lengths: [b-1] for batch size b; the last one goes on beyond."""
        if not draft_lengths or min(draft_lengths) < 0:
            raise SimulationError(
                "table", "draft lengths >= 0, one per batch size", list(draft_lengths), "fill it"
            )
        self._lengths = [0, *draft_lengths]
        self._last = len(draft_lengths)

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[int, int, int]]) -> TablePolicy:
        """From (first, last, draft length) rows; gaps keep the length before, as in vLLM."""
        lengths: list[int] = []
        for first, last, k in sorted(rows):
            lengths += lengths[-1:] * (first - 1 - len(lengths)) + [k] * (last - first + 1)
            if len(lengths) != last:
                raise SimulationError(
                    "table", "ranges from 1, without overlap", list(rows), "correct the rows"
                )
        return cls(lengths)

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        return tuple(self._lengths[1:])

    def draft_length(self, batch_size: int, observation: Observation) -> int:
        return self._lengths[batch_size if batch_size < self._last else self._last]

    def steady_steps(self, observation: Observation) -> int:
        return FOREVER

    def observe(self, steps: Steps) -> None:
        """A table does not learn."""


class FixedPolicy(TablePolicy):
    """The same draft length at every batch size; 0 is no speculation."""

    def __init__(self, draft_length: int) -> None:
        super().__init__([draft_length])


class ScheduledPolicy:
    """One policy until a time, another from then on: a promotion, or a test of the lag.

    parts: (from_s, policy), the first from 0 s.
    """

    def __init__(self, parts: Sequence[tuple[float, Policy]]) -> None:
        self._parts = list(parts)
        self.wants_steps = any(policy.wants_steps for _, policy in parts)

    def _now(self, now_s: float) -> Policy:
        return next(policy for from_s, policy in reversed(self._parts) if from_s <= now_s)

    def draft_length(self, batch_size: int, observation: Observation) -> int:
        return self._now(observation.now_s).draft_length(batch_size, observation)

    def steady_steps(self, observation: Observation) -> int:
        if self._parts[-1][0] > observation.now_s:
            return 1
        return self._parts[-1][1].steady_steps(observation)

    def observe(self, steps: Steps) -> None:
        for _, policy in self._parts:
            if policy.wants_steps:
                policy.observe(steps)
