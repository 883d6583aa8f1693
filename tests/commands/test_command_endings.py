"""A signal ends a command, wherever it arrives."""

import pathlib
import signal
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BEFORE = """
import signal, threading, time, weakref
from tabletune.commands import endings
endings.AGAIN_S = 0.05

class Thing: pass

def lost(number):
    thing = Thing()
    arrived = weakref.ref(thing, lambda _: signal.raise_signal(number))
    del thing
    assert arrived() is None
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    """What a program says; a process of its own has signals of its own."""
    return subprocess.run(
        [sys.executable, "-c", BEFORE + text],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_python_drops_is_raised_again(number: signal.Signals) -> None:
    """A handler that raises within a weak reference's callback: its error is only printed."""
    ended = run(f"""
try:
    with endings.ending_signals():
        lost({int(number)})
        print("goes on")
        threading.Event().wait(30)
        print("to its end")
except endings.Terminated as error:
    print(error.exit_status)
time.sleep(0.2)
""")
    assert "Exception ignored" in ended.stderr
    assert ended.stdout.split("\n") == ["goes on", f"{128 + number}", ""]
    assert ended.returncode == 0, "afterwards nothing is raised any more"


def test_what_is_on_its_way_out_is_left_alone() -> None:
    """Engines take longer to stop than a signal has until it is raised again."""
    ended = run("""
from contextlib import ExitStack, contextmanager

def stop(what):
    threading.Event().wait(0.3)
    print("stopped", what)

@contextmanager
def engine():
    try:
        yield
    finally:
        stop("one")

try:
    with endings.ending_signals(), ExitStack() as stack:
        stack.callback(stop, "two")
        try:
            with engine():
                signal.raise_signal(signal.SIGTERM)
        except endings.Terminated as error:
            stop("three")
            raise ValueError("died of it") from error
except ValueError as error:
    print(error)
""")
    assert ended.stdout.splitlines() == [
        "stopped one",
        "stopped three",
        "stopped two",
        "died of it",
    ]
    assert ended.returncode == 0, ended.stderr


def test_the_alarm_of_whoever_calls_stays_theirs() -> None:
    ended = run("""
signal.signal(signal.SIGALRM, lambda *_: print("theirs"))
try:
    with endings.ending_signals():
        signal.raise_signal(signal.SIGTERM)
except endings.Terminated:
    pass
signal.raise_signal(signal.SIGALRM)
with endings.ending_signals():
    signal.raise_signal(signal.SIGALRM)
""")
    assert ended.stdout.splitlines() == ["theirs", "theirs"]
