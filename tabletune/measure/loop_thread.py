"""An event loop on a thread of its own, for a load that others watch from outside."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine


class LoopThread:
    """Runs one coroutine; the thread ends with it.

    The loop is made by its own thread: where a signal interrupts the making of one in the main
    thread, Python prints a traceback of its destructor.

    Attributes: `done`: set once the coroutine has ended, however it did.
    """

    def __init__(
        self, name: str, serve: Callable[[Callable[[], None]], Coroutine[None, None, None]]
    ) -> None:
        """serve: given what it is to call once it can be told things."""
        self._serve = serve
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.done = threading.Event()

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def tell(self, action: Callable[[], None]) -> None:
        """Have the loop call this, as soon as the coroutine is ready; nothing once it ended."""
        self._ready.wait()
        with contextlib.suppress(RuntimeError):  # the loop has closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(action)

    def join(self, timeout_s: float = 30.0) -> None:
        """Wait for the end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve(self._ready.set))
        finally:
            self._ready.set()
            self.done.set()
