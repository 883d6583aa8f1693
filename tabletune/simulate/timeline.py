"""Where a simulation stands, and what its policy has been shown."""

from __future__ import annotations

from dataclasses import dataclass

from tabletune.simulate.policy import Policy, Steps


@dataclass(slots=True)
class Timeline:
    """now_s: end of the last step. last_start_s: its start. drafted_length: the guesses that
    it drafted, which the next step verifies. steps: run so far."""

    now_s: float = 0.0
    last_start_s: float = 0.0
    drafted_length: int = 0
    steps: int = 0

    def advance(self, draft_length: int, last_start_s: float, end_s: float, steps: int) -> None:
        self.drafted_length = draft_length
        self.last_start_s, self.now_s = last_start_s, end_s
        self.steps += steps


class Audience:
    """Shows finished steps to the policy, each one as late as the scheduler learns of it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._unseen: Steps | None = None
        self.wants_steps = policy.wants_steps

    def finished(self, steps: Steps) -> None:
        """Show what came before; these steps are shown next time."""
        self.show()
        self._unseen = steps

    def show(self) -> None:
        if self._unseen is not None:
            self._policy.observe(self._unseen)
            self._unseen = None
