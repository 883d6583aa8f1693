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


def test_the_timer_of_whoever_calls_goes_on() -> None:
    ended = run("""
signal.signal(signal.SIGALRM, lambda *_: print("theirs"))
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    with endings.ending_signals():
        signal.raise_signal(signal.SIGTERM)
except endings.Terminated:
    pass
threading.Event().wait(0.6)
""")
    assert ended.stdout.splitlines() == ["theirs"], ended.stderr
    assert ended.returncode == 0


def test_whoever_settles_a_signal_goes_on() -> None:
    ended = run("""
with endings.ending_signals():
    try:
        signal.raise_signal(signal.SIGINT)
    except endings.Terminated as end:
        end.settled = True
    threading.Event().wait(0.3)
    print("went on")
""")
    assert ended.stdout.splitlines() == ["went on"], ended.stderr
    assert ended.returncode == 0


def test_what_a_second_ctrl_c_ends_is_left_alone() -> None:
    """It is raised where nothing of the first one is on its way any more."""
    ended = run("""
try:
    with endings.ending_signals():
        try:
            signal.raise_signal(signal.SIGINT)
        except endings.Terminated:
            pass  # as code does that retries whatever fails
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            threading.Event().wait(0.3)
            print("cleaned up")
except KeyboardInterrupt:
    print("the second")
""")
    assert ended.stdout.splitlines() == ["cleaned up", "the second"], ended.stderr
    assert ended.returncode == 0


def test_a_generator_that_is_closed_cleans_up_first() -> None:
    ended = run("""
def slow():
    try:
        yield
    finally:
        threading.Event().wait(0.3)
        print("cleaned up")

try:
    with endings.ending_signals():
        lost(signal.SIGTERM)
        generator = slow()
        next(generator)
        generator.close()
        threading.Event().wait(30)
except endings.Terminated as error:
    print(error.exit_status)
""")
    assert ended.stdout.splitlines() == ["cleaned up", "143"], ended.stderr
    assert ended.returncode == 0


def test_another_end_that_is_on_its_way_is_left_alone() -> None:
    ended = run("""
try:
    with endings.ending_signals():
        lost(signal.SIGTERM)
        try:
            raise endings.Terminated(signal.SIGINT)
        finally:
            threading.Event().wait(0.3)
            print("cleaned up")
except endings.Terminated as error:
    print(error.exit_status)
""")
    assert ended.stdout.splitlines() == ["cleaned up", "130"], ended.stderr


def test_signals_are_given_back_where_one_arrives_meanwhile() -> None:
    ended = run("""
give = signal.signal
arrived = []

def late(number, handler):
    if number == signal.SIGALRM and not arrived and handler is signal.SIG_DFL:
        arrived.append(number)
        signal.raise_signal(signal.SIGALRM)
    return give(number, handler)

try:
    with endings.ending_signals():
        lost(signal.SIGTERM)
        signal.signal = late
except endings.Terminated as error:
    print(error.exit_status)
print(arrived == [signal.SIGALRM], signal.getitimer(signal.ITIMER_REAL)[0])
print([give(n, signal.SIG_DFL) for n in (signal.SIGALRM, signal.SIGTERM)] == [signal.SIG_DFL] * 2)
""")
    assert ended.stdout.splitlines() == ["143", "True 0.0", "True"], ended.stderr
