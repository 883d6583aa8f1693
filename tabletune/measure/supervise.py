"""Runs one engine and sees to it that nothing of it is left behind.

    python -I -S supervise.py GRACE_S -- COMMAND ...

A small process of its own (standard library only), between tabletune and the engine. Its
standard input is a pipe whose other end only tabletune holds: when tabletune closes it, or
is killed in whatever way, the read ends and the supervisor stops the engine. It is a child
subreaper (Linux), so descendants that moved into sessions of their own, as vLLM's engine
cores do, come back to it when their parent dies and are ended too. It never touches a
process that is not its descendant.

Standard output carries one JSON object a line: `started` (pid), `exited` (exit_status of
the engine, negative for a signal), `stopped` (left: process ids that would not die).
Standard error is the engine's log.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
#: Between SIGTERM and SIGKILL, in seconds.
TERM_GRACE_S = 3.0
#: How long SIGKILL is repeated before giving up on a process stuck in the kernel.
KILL_LIMIT_S = 20.0


def prctl(option: int, value: int) -> None:
    """Linux's prctl; does nothing where the C library has none."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def prepare_engine() -> None:
    """In the engine's process, before it runs.

    It ends when the supervisor is killed, and hears SIGINT even if tabletune runs as a
    shell's background job, which would have it ignored.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def say(event: str, **facts: object) -> None:
    """Tell tabletune, if it is still there."""
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps({"event": event, **facts}) + "\n").encode())


def parents() -> dict[int, int]:
    """Process id -> parent's process id, for all processes that /proc shows."""
    table: dict[int, int] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return table
    for name in names:
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The command in parentheses may itself hold spaces and parentheses.
                    fields = file.read().rpartition(b")")[2].split()
                if fields[0] != b"Z":
                    table[int(name)] = int(fields[1])
    return table


def descendants(root: int) -> list[int]:
    """The living descendants of a process, children before grandchildren."""
    table = parents()
    found: list[int] = []
    layer = {root}
    while layer:
        layer = {pid for pid, parent in table.items() if parent in layer}
        found += sorted(layer)
    return found


class Supervisor:
    """The engine's process, what is known of its end, and the way to stop it all."""

    def __init__(self, command: list[str], grace_s: float) -> None:
        self.grace_s = grace_s
        self.main_status: int | None = None
        self.asked = False
        self.parent_pid = os.getppid()
        self.child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
            preexec_fn=prepare_engine,  # noqa: PLW1509 (there is one thread here)
        )
        say("started", pid=self.child.pid)

    def reap(self) -> None:
        """Collect every child that has ended; remember the engine's own status."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child.pid:
                self.main_status = os.waitstatus_to_exitcode(status)
                self.child.returncode = self.main_status
                say("exited", exit_status=self.main_status)

    def wait_for_cause(self) -> None:
        """Return when the engine has ended, or tabletune closed the pipe or is gone."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._asked_to_stop)
        while True:
            self.reap()
            if self.main_status is not None or self.asked or os.getppid() != self.parent_pid:
                return
            ready, _, _ = select.select([0, wake_read], [], [], 1.0)
            if wake_read in ready:
                os.read(wake_read, 4096)
            if 0 in ready:
                request = os.read(0, 64)
                if request == b"":
                    return
                if b"K" in request:
                    self.grace_s = 0.0
                    return

    def _asked_to_stop(self, *_: object) -> None:
        self.asked = True

    def stop_all(self) -> list[int]:
        """End the engine: politely, then firmly. Returns the process ids left alive."""
        if self.main_status is None and self.grace_s > 0:
            self._signal([self.child.pid], signal.SIGINT)
            self._wait_until(lambda: self.main_status is not None, self.grace_s)
        if self.grace_s > 0:
            # Time for helpers, such as the resource tracker, to end by themselves.
            self._wait_until(lambda: not descendants(os.getpid()), min(1.0, self.grace_s))
            self._signal(descendants(os.getpid()), signal.SIGTERM)
            self._wait_until(lambda: not descendants(os.getpid()), TERM_GRACE_S)
        end_s = time.monotonic() + KILL_LIMIT_S
        while (left := descendants(os.getpid())) and time.monotonic() < end_s:
            self._signal(left, signal.SIGKILL)
            self._wait_until(lambda: not descendants(os.getpid()), 0.2)
        self.reap()
        if not os.path.isdir("/proc/self"):
            with contextlib.suppress(OSError):
                os.killpg(self.child.pid, signal.SIGKILL)
        return left

    def _wait_until(self, reached: Callable[[], bool], limit_s: float) -> None:
        end_s = time.monotonic() + limit_s
        while True:
            self.reap()
            if reached() or time.monotonic() >= end_s:
                return
            time.sleep(0.02)

    @staticmethod
    def _signal(pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def main(arguments: list[str]) -> int:
    """Start the command and stay until nothing of it is left."""
    grace_s, separator, *command = arguments
    if separator != "--" or not command:
        sys.exit("usage: supervise.py GRACE_S -- COMMAND ...")
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        supervisor = Supervisor(command, float(grace_s))
    except OSError as error:
        say("failed", error=str(error))
        return 1
    supervisor.wait_for_cause()
    left = supervisor.stop_all()
    say("stopped", left=left)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
