"""How a command ends: signals, errors as JSON, and output that nobody can take."""

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from types import FrameType

from tabletune.commands.console import print_json

#: Signals that ask a program to end, and what Python does about them by itself.
ENDING = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}

#: A signal that still has not ended anything after so long is raised again, and again.
AGAIN_S = 1.0
#: Besides `Terminated`, what is not cut off by that: something ends already. A generator that is
#: collected ends by a GeneratorExit, and Python drops what is raised from it.
ON_ITS_WAY = (KeyboardInterrupt, SystemExit, GeneratorExit)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Terminated(BaseException):
    """A signal asked this process to end.

    Attributes:
        signal_number, exit_status
        settled: to be set by who caught it and goes on: it is not raised again then.
    """

    def __init__(self, number: int) -> None:
        self.signal_number, self.exit_status, self.settled = number, 128 + number, False
        super().__init__(f"{signal.Signals(number).name} arrived")


@contextlib.contextmanager
def ending_signals() -> Iterator[None]:
    """Turn these signals into `Terminated`, so that engines are stopped on the way out.

    Stopping engines takes some seconds: a second SIGTERM or SIGHUP is ignored. A second Ctrl-C
    ends this process at once; the engines' supervisors go on stopping them. A signal that is
    ignored (nohup) stays ignored.

    Python drops what a handler raises while it runs a weak reference's callback or a finaliser
    ("Exception ignored in …"), as HTTP clients and executors have them: one signal in some hundred
    came to nothing so. Then `Terminated` is raised again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    taken = [number for number, usual in ENDING.items() if before[number] == usual]

    def end(number: int, frame: FrameType | None) -> None:
        for other in taken:
            ignored = other != signal.SIGINT
            signal.signal(other, signal.SIG_IGN if ignored else signal.default_int_handler)
        error = Terminated(number)
        if alarm is not None:  # else it is not Python's, and could not be given back
            signal.signal(signal.SIGALRM, partial(_raise_again, error))
            timers.append(signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S))
        raise error

    alarm, timers = signal.getsignal(signal.SIGALRM), list[tuple[float, float]]()

    def give_back() -> None:
        if timers:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, alarm)
        for number in taken:
            signal.signal(number, before[number])
        if timers:
            signal.setitimer(signal.ITIMER_REAL, *timers[0])

    try:
        for number in taken:
            signal.signal(number, end)
        yield
    finally:
        try:
            give_back()
        except BaseException:  # a signal, or the alarm, arrived in it
            give_back()
            raise


def _raise_again(ends: Terminated, alarm: int, frame: FrameType | None) -> None:
    """Raise it unless it, or another end, is on its way out, while engines are stopped."""
    error = sys.exception()
    while error is not None and not isinstance(error, (Terminated, *ON_ITS_WAY)):
        error = error.__context__
    if error is None and not ends.settled:
        raise ends


def write_any_text() -> None:
    """Let terminals that lack a character show it as an escape instead of failing.

    Without any standard output or error (`>&-`) what is said goes nowhere.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def print_error(error: BaseException, status: int) -> None:
    """The error as the one JSON object on standard output (docs/cli.md)."""
    with contextlib.suppress(OSError):
        message = str(error) or type(error).__name__
        facts = {"kind": type(error).__name__, "message": message, "exit_status": int(status)}
        print_json({"error": facts})


def output_fails(error: BaseException) -> bool:
    """Whether it is standard output that cannot be written.

    Files of ours that cannot be written have errors of their own (WorkspaceError, StoreFull).
    """
    return isinstance(error, OSError) and error.errno in NO_SPACE and error.filename is None


def discard_output() -> None:
    """After a reader has gone: let the interpreter's last flush fail no more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
