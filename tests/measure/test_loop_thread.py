"""A loop on a thread of its own: told things while it runs, quiet once it has ended."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from tabletune.measure.loop_thread import LoopThread


def test_it_is_told_things_and_ends() -> None:
    stop = asyncio.Event()
    threads: list[threading.Thread] = []

    async def serve(ready: Callable[[], None]) -> None:
        threads.append(threading.current_thread())
        ready()
        await stop.wait()

    loop = LoopThread("served", serve)
    assert not loop.done.is_set()
    loop.start()
    loop.tell(stop.set)
    loop.join()
    assert loop.done.is_set()
    assert threads[0].name == "served"
    assert not threads[0].is_alive()
    loop.tell(stop.clear)
    assert stop.is_set(), "the loop has ended: nothing is called"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_fails_before_it_is_ready_keeps_nobody_waiting() -> None:
    async def serve(ready: Callable[[], None]) -> None:
        raise OSError("no")

    loop = LoopThread("fails", serve)
    loop.start()
    loop.tell(lambda: None)
    loop.join()
    assert loop.done.is_set()
