"""The threads beside the engine: they start once, end with the process, and are not inherited."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tabletune_vllm.live.background import Background

ROOT = Path(__file__).parents[2]


class FakeFollowing:
    """Counts its turns; `turned` is set after each."""

    def __init__(self, turn: Callable[[], None] = lambda: None) -> None:
        self.turned, self.talked, self.closed = (threading.Event() for _ in range(3))
        self.names: set[str] = set()
        self._turn = turn

    def turn(self) -> None:
        self.names.add(threading.current_thread().name)
        self._turn()
        self.turned.set()

    def talk(self) -> bool:
        self.names.add(threading.current_thread().name)
        self.talked.set()
        return True

    def pause_s(self) -> float:
        return 0.001

    def close(self) -> None:
        self.closed.set()


def _background(following: Any, reasons: list[str], tick_s: float = 0.001) -> Background:
    return Background(lambda: following, reasons.append, lambda: not reasons, tick_s)


def test_two_daemon_threads_turn_and_talk_until_stopped() -> None:
    following, reasons = FakeFollowing(), []
    background = _background(following, reasons)
    background.start()
    background.start()
    assert following.turned.wait(10)
    assert following.talked.wait(10)
    assert following.names == {"tabletune", "tabletune-source"}
    assert len(background.threads) == 2
    assert all(thread.daemon for thread in background.threads)
    background.stop()
    for thread in background.threads:
        thread.join(10)
    assert following.closed.is_set()
    assert not background.running
    assert reasons == []


def test_an_answer_of_the_source_wakes_the_deciding_thread() -> None:
    following, reasons = FakeFollowing(), []
    background = _background(following, reasons, tick_s=3600.0)
    background.start()
    assert following.turned.wait(10)
    following.turned.clear()
    assert following.turned.wait(10)
    background.stop()


def test_an_exception_turns_off_once_and_ends_both_threads() -> None:
    def fail() -> None:
        raise MemoryError("no")

    following, reasons = FakeFollowing(fail), []
    background = _background(following, reasons)
    background.start()
    for thread in list(background.threads):
        thread.join(10)
    assert following.closed.wait(10)
    assert len(reasons) == 1
    assert "MemoryError" in reasons[0]


def test_a_failing_start_turns_off() -> None:
    reasons: list[str] = []

    def make() -> Any:
        raise ImportError("no tabletune")

    background = Background(make, reasons.append, lambda: True, 0.01)
    background.start()
    background.threads[0].join(10)
    assert reasons == ["the background thread failed: ImportError('no tabletune')"]


def test_a_forked_child_has_no_thread_and_starts_its_own() -> None:
    following, reasons = FakeFollowing(), []
    background = _background(following, reasons)
    background.start()
    assert following.turned.wait(10)
    calls: list[int] = []
    background.orphaned = lambda: calls.append(1)
    child = os.fork()
    if child == 0:
        # Only the child's exit status tells; nothing of pytest may run here.
        good = calls == [1] and not background.threads and not background.running
        following.turned.clear()
        background.start()
        good = good and following.turned.wait(10)
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    background.stop()
    assert os.waitstatus_to_exitcode(status) == 0
    assert calls == []


STUCK = """
import sys, threading
from tabletune_vllm.live.background import Background

class Following:
    def turn(self): pass
    def talk(self):
        stuck.set()
        threading.Event().wait()  # a source that never answers
    def pause_s(self): return 0.01
    def close(self): pass

stuck = threading.Event()
background = Background(Following, print, lambda: True, 0.01)
background.start()
stuck.wait()
print("ends")
"""


def test_the_process_ends_while_the_source_does_not_answer() -> None:
    environ = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'plugin'}"}
    command = [sys.executable, "-c", STUCK]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environ, timeout=60, check=True
    )
    assert done.stdout == "ends\n"
    assert done.stderr == ""
