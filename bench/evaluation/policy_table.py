"""A policy that looks like a table to the plugin's lookup, and learns from recorded steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from tabletune.simulate.policy import Observation, Policy, Steps
from tabletune_vllm.ring import FLOAT_COLUMNS, INT_COLUMNS

#: So many recorded steps after it comes in, a policy does not learn: drafts that another one
#: chose are still verified in them. With asynchronous scheduling two steps are in flight then.
FOREIGN_STEPS = 3

_COLUMNS = (*FLOAT_COLUMNS, *INT_COLUMNS)
(
    _TIME,
    _STEP_TIME,
    _BATCH,
    _CHOSEN,
    _VERIFIED,
    _PREFILLS,
    _PREFILL_TOK,
    _OUTPUT,
    _IDLE,
    _DISTURBED,
) = (
    _COLUMNS.index(name)
    for name in (
        "time_s",
        "step_time_s",
        "batch_size",
        "draft_length",
        "draft_length_verified",
        "prefill_requests",
        "prefill_tokens",
        "output_tokens",
        "after_idle",
        "disturbed",
    )
)


@dataclass
class Cost:
    """What deciding took on the engine's thread: calls, and seconds over all of them."""

    chosen: int = 0
    choose_s: float = 0.0
    observed: int = 0
    observe_s: float = 0.0
    skipped: int = 0
    chosen_lengths: dict[int, int] = field(default_factory=dict[int, int])

    def report(self) -> dict[str, object]:
        """Plain values; times in microseconds a call."""
        return {
            "chosen_steps": self.chosen,
            "choose_us": round(1e6 * self.choose_s / max(1, self.chosen), 2),
            "observed_steps": self.observed,
            "observe_us": round(1e6 * self.observe_s / max(1, self.observed), 2),
            "skipped_steps": self.skipped,
            "chosen_lengths": {str(k): n for k, n in sorted(self.chosen_lengths.items())},
        }


class PolicyTable(Sequence[int]):
    """What the lookup reads, once per step: indexing asks the policy.

    usable: [b][K], the length that is run where the policy wants K at batch size b: K itself
    where the engine's envelope has it. The policy is told what was run.
    """

    def __init__(
        self,
        policy: Policy,
        usable: Sequence[Sequence[int]],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.policy, self.cost = policy, Cost()
        self._usable, self._clock = usable, clock
        self._observation, self._foreign = Observation(), FOREIGN_STEPS

    def __len__(self) -> int:
        return len(self._usable)

    def come_in(self) -> None:
        """It goes in force now; what is recorded at first was chosen by another."""
        self._foreign = FOREIGN_STEPS

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        """The length of the step that begins now, of so many requests."""
        if isinstance(index, slice):
            raise TypeError("a policy decides step by step; it has no stretch of lengths")
        begun_s = self._clock()
        observation, cost = self._observation, self.cost
        observation.now_s = begun_s
        length = self._usable[index][self.policy.draft_length(index, observation)]
        observation.step += 1
        observation.last_draft_length = length
        cost.chosen += 1
        cost.chosen_lengths[length] = cost.chosen_lengths.get(length, 0) + 1
        cost.choose_s += self._clock() - begun_s
        return length

    def observe(self, record: Sequence[float]) -> None:
        """Learn from one record of the plugin's ring, in the order of its columns.

        Left out: steps of another policy, steps whose time includes waiting or a client's
        call, and steps in which the drafts of some requests were made more than a step ago.
        """
        if self._foreign > 0:
            self._foreign -= 1
            self.cost.skipped += 1
            return
        if not self.policy.wants_steps:
            return
        verified = int(record[_VERIFIED])
        if record[_IDLE] or record[_DISTURBED] or verified < 0 or record[_STEP_TIME] <= 0:
            self.cost.skipped += 1
            return
        begun_s = self._clock()
        self.policy.observe(_steps_of(record, verified))
        self.cost.observed += 1
        self.cost.observe_s += self._clock() - begun_s


def _steps_of(record: Sequence[float], verified: int) -> Steps:
    positions = (len(record) - len(_COLUMNS)) // 2
    drafted = record[len(_COLUMNS) : len(_COLUMNS) + verified]
    accepted = record[len(_COLUMNS) + positions : len(_COLUMNS) + positions + verified]
    batch_size, prefills = int(record[_BATCH]), int(record[_PREFILLS])
    return Steps(
        start_s=float(record[_TIME] - record[_STEP_TIME]),
        step_time_s=np.array([record[_STEP_TIME]], dtype=np.float64),
        tokens=np.array([max(1, int(record[_OUTPUT]))], dtype=np.int64),
        batch_size=batch_size,
        decode_requests=batch_size - prefills,
        prefill_requests=prefills,
        prefill_tok=int(record[_PREFILL_TOK]),
        context_tok=0,
        draft_length=int(record[_CHOSEN]),
        verified_length=verified,
        drafted_through=np.array([drafted], dtype=np.int64).reshape(1, verified),
        accepted_through=np.array([accepted], dtype=np.int64).reshape(1, verified),
    )


def usable_lengths(
    envelope: Mapping[str, Sequence[Sequence[int]]], max_num_seqs: int, longest: int
) -> list[list[int]]:
    """[b][K] for `PolicyTable`: the longest length up to K that the envelope has at b, or the
    shortest that it has at all.

    >>> usable_lengths({"0": [(1, 2)], "2": [(1, 1)]}, 2, 2)[1:]
    [[0, 0, 2], [0, 0, 0]]
    """
    rows: list[list[int]] = [[0] * (longest + 1)]
    for b in range(1, max_num_seqs + 1):
        has = sorted(
            int(k)
            for k, ranges in envelope.items()
            if any(first <= b <= last for first, last in ranges)
        )
        at_hand = has or [0]
        rows.append(
            [
                max((k for k in at_hand if k <= wanted), default=at_hand[0])
                for wanted in range(longest + 1)
            ]
        )
    return rows
