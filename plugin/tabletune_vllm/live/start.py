"""Starts the following of a source in the process that owns the scheduler."""

import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tabletune_vllm.live.background import Background
from tabletune_vllm.logs import logger
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.settings import FollowSettings

if TYPE_CHECKING:
    from tabletune_vllm.live.follow import Following

# Steps that wait for the background thread, at most: its turns are a second apart, and where
# steps are so short that there are more of them, few requests make each cheap to complete.
MOST_PENDING = 256
#: The interpreter is one thread's at a time, and a thread that waits for it waits 5 ms before it
#: asks: longer than a turn takes. A turn that sleeps this long now and then has it taken over.
BREATH_S = 1e-4


def start_following(
    runtime: Runtime, settings: FollowSettings, engine_self: Callable[[], Any]
) -> Background:
    """Follow a source beside the engine. engine_self: what the seam knows of the engine, as the
    source's checks need it; called on the background thread."""

    def status() -> dict[str, object]:
        following = background.following
        if following is not None:
            return {**following.published, "running": background.running}
        starting = {"source": settings.source, "channel": settings.channel}
        return {**starting, "mode": "off", "ceiling": settings.mode, "running": background.running}

    background = Background(
        lambda: _make(runtime, settings, engine_self),
        runtime.turn_off,
        lambda: runtime.active,
        settings.tick_s,
    )
    runtime.live_status = status
    runtime.observer.most_pending = MOST_PENDING
    background.orphaned = lambda: runtime.orphan(background.start)
    logger.info("TableTune follows %s of %s", settings.channel, settings.source)
    background.start()
    return background


def _make(
    runtime: Runtime, settings: FollowSettings, engine_self: Callable[[], Any]
) -> "Following":
    # Numpy, pydantic and the source's client: imported here, on the thread that may wait.
    from tabletune.core.controller.settings import ControllerSettings
    from tabletune_vllm.live.decision_log import DecisionLog
    from tabletune_vllm.live.follow import Following
    from tabletune_vllm.live.loop import Loop
    from tabletune_vllm.live.target import TargetMaker
    from tabletune_vllm.live.tell import Teller
    from tabletune_vllm.live.words import Times
    from tabletune_vllm.source import open_follower

    facts = runtime.facts
    clock, wall = time.monotonic, time.time
    seed = secrets.randbits(53) if settings.seed is None else settings.seed
    trace = settings.trace
    log = None if trace is None else DecisionLog(trace, facts, settings.channel)
    loop = Loop(runtime, ControllerSettings(), seed, log, lambda: time.sleep(BREATH_S))
    follower = open_follower(
        settings.source,
        settings.channel,
        settings.mode,
        engine_self(),
        settings.cache,
        settings.public_key,
        settings.poll_s,
        secrets.randbits(32),
    )
    maker = TargetMaker(facts, runtime.boot_lengths, settings.max_tpot_s)
    at = Times(clock(), wall())
    teller = Teller(settings.channel, settings.snapshot_s, facts.max_draft_length, at)
    return Following(settings, loop, follower, maker, teller, clock, wall)
