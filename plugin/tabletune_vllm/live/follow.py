"""What the two threads do: follow a source, keep the loop turning, tell back."""

import threading
from collections import deque
from collections.abc import Callable

from tabletune_vllm.live.loop import Loop
from tabletune_vllm.live.tell import Teller
from tabletune_vllm.live.words import FollowerLike, Target, Times
from tabletune_vllm.settings import FollowSettings

ANSWERS_KEPT = 64
LONGEST_PAUSE_S = 0.25


class Following:
    """Joins the follower of a source and the loop; each side runs on a thread of its own.

    clock: seconds, monotonic. wall: unix seconds. target_of: a follower's answer as a Target,
    a reason text where it is a refusal, None where nothing is new.
    """

    def __init__(
        self,
        settings: FollowSettings,
        loop: Loop,
        follower: FollowerLike,
        target_of: Callable[[object], Target | str | None],
        teller: Teller | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.settings, self.loop, self.follower = settings, loop, follower
        self._target_of = target_of
        self._teller = teller
        self._clock, self._wall = clock, wall
        self._answers: deque[object] = deque(maxlen=ANSWERS_KEPT)
        self._polled = threading.Event()
        self._turned_s = float("-inf")
        self.polls = 0
        self.told: str | None = None
        # Made anew after each turn and never changed after, so that the engine's thread can
        # hand it out without looking at anything that moves.
        self.published: dict[str, object] = self.status()

    def turn(self) -> None:
        """One turn of the deciding thread: answers of the source first, then the steps."""
        at = Times(self._clock(), self._wall())
        while self._answers:
            answer = self._target_of(self._answers.popleft())
            if isinstance(answer, Target):
                self.loop.take(answer, at)
            elif answer is not None:
                self.loop.refuse(answer, at)
        if self._polled.is_set():
            # Not before the source was asked once: its switch may say off.
            self.loop.set_mode(self.follower.mode, "", at)
        # An answer of the source wakes this thread early; the steps are looked at in time.
        decision = None
        if at.now_s - self._turned_s >= self.settings.tick_s / 2.0 or at.now_s < self._turned_s:
            self._turned_s = at.now_s
            decision = self.loop.turn(at)
            self.loop.breathe()
        if self._teller is not None:
            self._teller.turned(self.loop, decision, at)
            self.loop.breathe()
        self.published = self.status()

    def talk(self) -> bool:
        """One turn of the talking thread; whether the source was asked."""
        now_s = self._clock()
        asked = self.follower.due(now_s)
        if asked:
            self._answers.append(self.follower.poll(now_s))
            self.polls += 1
            self._polled.set()
        if self._teller is not None:
            data = self._teller.take()
            if data is not None:
                self.told = self.follower.tell(self.loop.runtime.facts.run_id, data)
        return asked

    def pause_s(self) -> float:
        """How long the talking thread may sleep: it has to notice what there is to tell."""
        return min(self.settings.poll_s / 4.0, LONGEST_PAUSE_S)

    def close(self) -> None:
        """The loop has ended."""
        reason = self.loop.runtime.reason or "the process ends"
        self.loop.close(reason, Times(self._clock(), self._wall()))

    def status(self) -> dict[str, object]:
        """The controller's share of the status, as plain values."""
        loop, settings = self.loop, self.settings
        controller, target = loop.controller, loop.target
        return {
            "mode": loop.mode,
            "ceiling": settings.mode,
            "channel": settings.channel,
            "source": settings.source,
            "version": None if target is None else target.version,
            "from_cache": False if target is None else target.from_cache,
            "notes": [] if target is None else list(target.notes),
            "suspended": loop.suspended,
            "follower": dict(self.follower.status()),
            "polls": self.polls,
            "state": None if controller is None else controller.state(),
            "seed": loop.seed,
            "trace": loop.log_state(),
            "told": self.told,
            "steps_lost": loop.reader.lost,
            "steps_implausible": loop.reader.implausible,
            **loop.journal.recent(),
        }
