"""The controller as a policy of the simulator: the very same code that serves in the plugin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tabletune.core.controller.controller import Controller
from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import LiveObservation, StepColumns
from tabletune.core.controller.routes import Routes
from tabletune.core.controller.summarise import summarise
from tabletune.simulate.policy import Observation, Steps

_FIRST_STEP_S = 0.005  # before any step was seen


class ControllerPolicy:
    """Ticks the controller every `tick_s` of simulated time and does what it decides.

    As in the plugin: a table is swapped between steps, a probe runs once and then the table
    again, and no forbidden transition is made. full_drafts: see `summarise`. trace: called
    with each (observation, now_s, decision).
    """

    wants_steps = True

    def __init__(
        self,
        controller: Controller,
        tick_s: float = 1.0,
        *,
        full_drafts: bool = True,
        trace: Callable[[LiveObservation, float, Decision], None] | None = None,
    ) -> None:
        self.controller, self._tick_s = controller, tick_s
        self._full_drafts, self._trace = full_drafts, trace
        promoted = controller.promoted
        self._longest = promoted.max_draft_length
        pairs = promoted.forbidden_transitions
        self._routes = Routes(
            {*promoted.usable, *controller.table},
            [*pairs, *((b, a) for a, b in pairs)],
            promoted.max_num_seqs,
            promoted.envelope,
        )
        self._table = (0, *controller.table)
        self._probe: list[list[int]] = []
        self._pending: list[Steps] = []
        self._from_s = 0.0
        self._next_tick_s = tick_s
        self._step_s = _FIRST_STEP_S
        self.decisions: list[tuple[float, Decision]] = []

    def draft_length(self, batch_size: int, observation: Observation) -> int:
        if observation.now_s >= self._next_tick_s:
            self._tick(observation.now_s)
        wanted = self._table[batch_size]
        if self._probe:
            part = self._probe[0]
            if self.controller.promoted.envelope(batch_size, part[0]):
                wanted = part[0]
            part[1] -= 1
            if part[1] <= 0:
                del self._probe[0]
        return self._routes.next_length(batch_size, observation.last_draft_length, wanted)

    def steady_steps(self, observation: Observation) -> int:
        if self._probe:
            return 1
        return max(1, int((self._next_tick_s - observation.now_s) / self._step_s))

    def observe(self, steps: Steps) -> None:
        self._pending.append(steps)
        self._step_s = float(steps.step_time_s[-1])

    def _tick(self, now_s: float) -> None:
        observation = self._summarised(now_s)
        decision = self.controller.tick(observation, now_s)
        if decision.lengths is not None:
            self._table = (0, *decision.lengths)
            self._probe = []
        elif decision.probe:
            self._probe = [list(part) for part in decision.probe]
        if decision.kind != "hold":
            self.decisions.append((now_s, decision))
        if self._trace is not None:
            self._trace(observation, now_s, decision)
        self._from_s = now_s
        self._next_tick_s = now_s + self._tick_s

    def _summarised(self, now_s: float) -> LiveObservation:
        if not self._pending:
            return LiveObservation.nothing(self._from_s, now_s, self._longest)
        columns = step_columns(self._pending, self._longest)
        self._pending = []
        settings = self.controller.settings
        return summarise(
            columns,
            self._from_s,
            now_s,
            expected_step_time_s=self.controller.expected_step_time_s,
            full_drafts=self._full_drafts,
            stall_factor=settings.stall_factor,
            stall_floor_s=settings.stall_floor_s,
        )


def step_columns(finished: list[Steps], max_draft_length: int) -> StepColumns:
    """The simulator's steps as the plugin's columns."""
    counts = np.array([steps.count for steps in finished])
    total = int(counts.sum())
    drafted = np.zeros((total, max_draft_length), dtype=np.int64)
    accepted = np.zeros((total, max_draft_length), dtype=np.int64)
    row = 0
    for steps in finished:
        if steps.verified_length:
            rows = slice(row, row + steps.count)
            drafted[rows, : steps.verified_length] = steps.drafted_through
            accepted[rows, : steps.verified_length] = steps.accepted_through
        row += steps.count
    facts = np.array(
        [
            (
                s.batch_size,
                s.draft_length,
                s.verified_length,
                s.prefill_requests,
                s.decode_requests if s.verified_length else 0,
                s.batch_size - s.prefill_requests - s.decode_requests,
            )
            for s in finished
        ],
        dtype=np.int64,
    )
    batch, drafting, verified, prefills, requests, ended = np.repeat(facts, counts, axis=0).T
    times = np.concatenate([s.step_time_s for s in finished])
    ends = np.concatenate([s.start_s + np.cumsum(s.step_time_s) for s in finished])
    # Requests that had ended are scheduled with their drafts once more, for nothing.
    carried = np.where(verified > 0, drafted[:, 0] + ended, 0) if max_draft_length else ended
    return StepColumns(
        time_s=ends,
        step_time_s=times,
        batch_size=batch,
        draft_length=drafting,
        verified_length=verified,
        prefill_requests=prefills,
        request_steps=requests,
        drafted_requests=carried,
        output_tok=np.concatenate([s.tokens for s in finished]),
        waiting_requests=np.zeros(total, dtype=np.int64),
        undisturbed=np.ones(total, dtype=np.bool_),
        drafted_through=drafted,
        accepted_through=accepted,
    )
