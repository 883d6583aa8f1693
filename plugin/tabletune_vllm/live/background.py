"""The two threads beside the engine's: one looks and decides, one talks to the source.

They start where the scheduler lives and nowhere else. They are daemon threads and hold no lock
of the engine's, so neither a step nor the end of the process waits for them. A process that
was forked off has none of them; it starts its own when it takes a step itself.
"""

import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from tabletune_vllm.logs import logger

if TYPE_CHECKING:
    from tabletune_vllm.live.follow import Following

_started: "weakref.WeakSet[Background]" = weakref.WeakSet()


class Background:
    """make builds the Following in the first thread, for that imports much and may be slow.

    failed is called once with the reason when anything goes wrong; it puts the boot table back.
    """

    def __init__(
        self,
        make: "Callable[[], Following]",
        failed: Callable[[str], None],
        active: Callable[[], bool],
        tick_s: float,
    ) -> None:
        self.following: Following | None = None
        # Called in a forked child, where nothing of this runs any more.
        self.orphaned: Callable[[], None] | None = None
        self._make, self._failed, self._active = make, failed, active
        self._tick_s = tick_s
        self._reset()

    def _reset(self) -> None:
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self.threads: list[threading.Thread] = []

    @property
    def running(self) -> bool:
        """Whether the threads of this process live."""
        return any(thread.is_alive() for thread in self.threads)

    def start(self) -> None:
        """Start the threads of this process; nothing happens the second time."""
        if self.threads:
            return
        _started.add(self)
        self._start(self._decide, "tabletune")

    def stop(self) -> None:
        """Ask the threads to end; does not wait."""
        self._stopped.set()
        self._wake.set()

    def after_fork(self) -> None:
        """In a forked child: none of the threads came along, nor what they had open."""
        self.following = None
        self._reset()
        if self.orphaned is not None:
            self.orphaned()

    def _start(self, run: Callable[["Following | None"], None], name: str) -> None:
        thread = threading.Thread(target=self._guarded, args=(run,), name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _guarded(self, run: Callable[["Following | None"], None]) -> None:
        try:
            run(self.following)
        except BaseException as error:
            self.stop()
            self._failed(f"the background thread failed: {error!r}")
        finally:
            if run == self._decide and self.following is not None:
                self._close(self.following)

    def _close(self, following: "Following") -> None:
        try:
            following.close()
        except Exception as error:
            logger.debug("TableTune: while closing: %r", error)

    def _decide(self, _: "Following | None") -> None:
        following = self._make()
        self.following = following
        self._start(self._talk, "tabletune-source")
        while not self._stopped.is_set() and self._active():
            following.turn()
            # Woken early by an answer of the source, so that a switch acts at once.
            self._wake.wait(self._tick_s)
            self._wake.clear()

    def _talk(self, following: "Following | None") -> None:
        assert following is not None
        while not self._stopped.is_set() and self._active():
            if following.talk():
                self._wake.set()
            self._stopped.wait(following.pause_s())


def _after_fork_in_child() -> None:
    for background in list(_started):
        background.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
