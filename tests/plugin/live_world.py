"""An engine of stand-ins with a clock of its own, for the loop beside it: no thread, no sleep.

The scheduler is the fake one; ring, lookup, loop and controller are the real ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fake_vllm

from tabletune.core.controller.promoted import Promoted
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.counts import SurvivalCounts
from tabletune.core.step_time import StepTimeEstimate
from tabletune.core.surface import StepTimeSurface
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.live.decision_log import DecisionLog
from tabletune_vllm.live.follow import Following
from tabletune_vllm.live.loop import Loop
from tabletune_vllm.live.words import Target
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam.step_hooks import hook
from tabletune_vllm.settings import FollowSettings

SIZE, K_MAX = 4, 3
BOOT = [0, 3, 3, 1, 0]


@dataclass
class Clock:
    """Seconds that pass only when told to."""

    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def facts(**changes: Any) -> EngineFacts:
    values = {
        "vllm_version": "0.32.0",
        "runner": "V1",
        "device": "cpu",
        "method": "eagle3",
        "async_scheduling": False,
        "max_num_seqs": SIZE,
        "max_draft_length": K_MAX,
        "run_id": "run1",
        "started_unix_s": 0.0,
        "model": "fake-model",
    }
    return EngineFacts(**{**values, **changes})


def step_time_s(batch_size: int, draft_length: int) -> float:
    """The engine's true costs, known to the profile too."""
    return 0.010 + 0.001 * batch_size * draft_length


def promoted(table: tuple[int, ...], **changes: Any) -> Promoted:
    """A version's evidence: true step times, good acceptance."""
    cells = {
        (b, k): StepTimeEstimate(step_time_s(b, k), step_time_s(b, k), step_time_s(b, k), 80, 0)
        for b in range(1, SIZE + 1)
        for k in range(K_MAX + 1)
    }
    values = {
        "lengths": table[1:],
        "usable": tuple(range(K_MAX + 1)),
        "surface": StepTimeSurface.from_cells(cells),
        "prior": SurvivalCounts([400, 400, 400], [320, 240, 160], 400),
        "envelope": lambda b, k: True,
        "max_num_seqs": SIZE,
        "max_draft_length": K_MAX,
        "version": "v",
    }
    return Promoted(**{**values, **changes})


def target(table: list[int], version: str = "v1", **changes: Any) -> Target:
    values: dict[str, Any] = {
        "version": version,
        "fingerprint": "f" * 64,
        "table": tuple(table),
        "lengths": frozenset(range(K_MAX + 1)),
        "forbidden": frozenset(),
        "envelope": lambda b, k: True,
        "promoted": promoted(tuple(table), version=version) if len(table) == SIZE + 1 else None,
    }
    return Target(**{**values, **changes})


@dataclass
class FakeFollower:
    """Answers in a row; the last one again and again."""

    answers: list[object] = field(default_factory=list)
    mode: str = "follow"
    told: list[tuple[str, bytes]] = field(default_factory=list)

    def poll(self, now_s: float) -> object:
        return self.answers.pop(0) if self.answers else None

    def due(self, now_s: float) -> bool:
        return True

    def status(self) -> Mapping[str, object]:
        return {"polls": "fake"}

    def tell(self, name: str, data: bytes) -> str | None:
        self.told.append((name, data))
        return None


class World:
    """One engine, its runtime and its loop."""

    def __init__(
        self, mode: str = "follow", log: DecisionLog | None = None, **changes: Any
    ) -> None:
        self.clock = Clock()
        self.facts = facts(**changes)
        self.scheduler = fake_vllm.Scheduler(list(BOOT), k_max=K_MAX, max_num_seqs=SIZE)
        self.boot = self.scheduler.dynamic_sd_lookup
        self.runtime: Runtime = hook(self.scheduler, self.facts, 4096, self.clock)
        self.loop = Loop(self.runtime, ControllerSettings(), 1, log)
        self.follower = FakeFollower(mode=mode)
        settings = FollowSettings("file:///x", mode=mode)
        self.following = Following(
            settings, self.loop, self.follower, answer, None, self.clock, self.wall
        )

    def wall(self) -> float:
        return 1e9 + self.clock.now_s

    def poll(self, *answers: object) -> None:
        """The source answers, and the loop hears of it."""
        self.follower.answers.extend(answers)
        for _ in answers or (None,):
            self.following.talk()
        self.following.turn()

    def serve(self, batch: int, seconds: float, accepted: int = 3) -> None:
        """Decode steps until so many seconds have passed, without a turn."""
        end_s = self.clock.now_s + seconds
        while self.clock.now_s < end_s:
            pending = self.scheduler.pending
            outputs = self.scheduler.decode(batch, accepted)
            self.clock.now_s += step_time_s(batch, pending)
            result = self.scheduler.update_from_output(*outputs)
            assert result["of"] is outputs[0]

    def ticks(self, batch: int, count: int, accepted: int = 3) -> None:
        """Seconds of serving, each followed by a turn."""
        for _ in range(count):
            self.serve(batch, 1.0, accepted)
            self.following.turn()

    def table(self) -> list[int]:
        """What the scheduler's lookup answers now, without a probe or a hold."""
        return list(self.runtime.table)

    @property
    def in_force(self) -> Any:
        return self.scheduler.dynamic_sd_lookup


def answer(value: object) -> Target | str | None:
    """The fake follower speaks in targets and reasons already."""
    return value if isinstance(value, Target | str) else None
