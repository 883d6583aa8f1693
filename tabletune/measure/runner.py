"""Starts an engine, waits until it serves, and stops all of it again.

    with start_engine(launch, progress=show) as engine:
        httpx.get(f"{engine.base_url}/v1/models")

The engine runs below a supervisor process (supervise.py), so that it ends with this process
however this process ends, and nothing else is ever stopped.
"""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self

from tabletune.measure import engine_log, supervise
from tabletune.measure.clock import Clock, SystemClock
from tabletune.measure.engine_errors import (
    EngineDied,
    EngineError,
    EngineNotReady,
    EngineNotStarted,
    NoRoomForLog,
    PortTaken,
)
from tabletune.measure.launch import HOST, EngineLaunch, check_port, free_port

SUPERVISOR: Final = pathlib.Path(supervise.__file__)
#: How long an engine may take to end by itself after SIGINT, in seconds.
GRACE_S: Final = 10.0
#: How long a lost engine's server may take to end by itself, in seconds.
FATAL_GRACE_S: Final = 15.0
#: Between two looks at a starting engine, in seconds.
POLL_S: Final = 0.25
#: Starts tried when a port found free was taken before the engine could have it.
PORT_ATTEMPTS: Final = 3


class BootProgress(NamedTuple):
    """Where a starting engine is: seconds waited, phase in words, the log's last line."""

    waited_s: float
    phase: str
    last_line: str


class EngineExit(NamedTuple):
    """The end of an engine: its exit status (negative: the signal; None: unknown)."""

    exit_status: int | None


def ignore_progress(progress: BootProgress) -> None:
    """A progress callback that does nothing."""
    del progress


class RunningEngine:
    """An engine that was started here. Leaving its `with` block stops it.

    Attributes: launch, port, base_url, log_path, boot_time_s (start to healthy).
    """

    def __init__(
        self, launch: EngineLaunch, port: int, inherited: Mapping[str, str] | None = None
    ) -> None:
        """Start the process; use `start_engine` to get one that is healthy.

        Raises:
            EngineNotStarted: no process could be made. NoRoomForLog: its log's disk is full.
        """
        self.launch = launch
        self.port = port
        self.base_url = f"http://{HOST}:{port}"
        self.log_path = launch.log_path
        self.boot_time_s = 0.0
        self.pid: int | None = None
        self._exit: EngineExit | None = None
        self._left: list[int] = []
        self._events = b""
        self._problem = ""
        environment = launch.full_environment(os.environ if inherited is None else inherited)
        command = launch.command_line(port)
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            full = engine_log.no_room(self.log_path)
            if full:
                raise NoRoomForLog(self.log_path, full)
            with self.log_path.open("ab") as log:
                self.log_start_bytes = log.seek(0, os.SEEK_END)
                self._supervisor = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(SUPERVISOR), str(GRACE_S), "--", *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                    bufsize=0,
                    start_new_session=True,
                )
        except OSError as error:
            raise EngineNotStarted(
                f"could not start an engine with its log at {str(self.log_path)!r}: {error}; "
                f"choose a folder that can be written and has free space"
            ) from error
        assert self._supervisor.stdout is not None
        os.set_blocking(self._supervisor.stdout.fileno(), False)
        self._log = engine_log.LogFollower(self.log_path, self.log_start_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def died(self) -> EngineExit | None:
        """How the engine ended, or None while it lives."""
        self._read_events()
        if self._exit is None and self._supervisor.poll() is not None:
            self._read_events()
            self._exit = self._exit or EngineExit(None)
        return self._exit

    def check(self, while_doing: str) -> None:
        """Do nothing if the engine lives.

        Raises:
            EngineDied: it does not, or it logged a fatal error (its server may then live
                on without an engine); the message has the cause and the log's end.
        """
        if self.is_lost():
            raise self._death(self.died(), while_doing)

    def is_lost(self) -> bool:
        """Whether it ended, or logged a fatal error: its server may then stay without an engine."""
        self._log.read()
        return self.died() is not None or bool(self._log.fatal)

    def _death(self, exit_: EngineExit | None, while_doing: str) -> EngineDied:
        status = exit_.exit_status if exit_ else None
        text = self._log_of_this_start()
        return EngineDied(
            status,
            while_doing,
            self._problem or engine_log.cause_of(text),
            self._hint(text, status),
            self.log_path,
            self.log_tail(),
        )

    def _hint(self, log_text: str, exit_status: int | None = None) -> str:
        """What to do, by what the log says and by what it may have had no room for."""
        full = engine_log.no_room(self.log_path)
        hints = [engine_log.hint_for(log_text, exit_status)]
        hints += [engine_log.hint_without_room(full)] if full else []
        return "\n".join(hint for hint in hints if hint)

    def log_has_room(self) -> bool:
        """Whether the engine can still write into its log."""
        return not engine_log.no_room(self.log_path)

    def log_tail(self, lines: int = 25) -> list[str]:
        """The last lines of the engine's log."""
        return engine_log.read_tail(self.log_path, lines)

    def is_healthy(self, timeout_s: float = 2.0) -> bool:
        """Whether `/health` answers 200."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout_s)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait_until_healthy(
        self, deadline_s: float, progress: Callable[[BootProgress], None], clock: Clock
    ) -> None:
        """Wait for `/health`, reporting each change and every second.

        Raises:
            EngineDied, EngineNotReady: see there. The engine is not stopped here.
        """
        follower = self._log
        start_s = clock.now_s()
        fatal_since_s: float | None = None
        reported: tuple[int, str, str] | None = None
        while True:
            follower.read()
            waited_s = clock.now_s() - start_s
            state = (int(waited_s), follower.phase, follower.last_line)
            if state != reported:
                progress(BootProgress(waited_s, follower.phase, follower.last_line))
                reported = state
            exit_ = self.died()
            if follower.fatal and fatal_since_s is None:
                fatal_since_s = waited_s
            lost = fatal_since_s is not None and waited_s - fatal_since_s > FATAL_GRACE_S
            if exit_ is not None or lost:
                follower.read()
                raise self._death(exit_, f"starting ({follower.phase})")
            if self.is_healthy():
                self.boot_time_s = clock.now_s() - start_s
                return
            if waited_s > deadline_s:
                hint = self._hint(self._log_of_this_start())
                raise EngineNotReady(waited_s, follower.phase, hint, self.log_path, self.log_tail())
            clock.sleep_s(POLL_S)

    def stop(self, grace_s: float | None = None) -> list[int]:
        """Stop the engine and every process it started; returns those that would not die.

        grace_s: 0 kills at once; None lets it end by itself for up to GRACE_S. May be
        called again; the second call does nothing.
        """
        lifeline = self._supervisor.stdin
        assert lifeline is not None
        with contextlib.suppress(OSError):
            if grace_s == 0 and not lifeline.closed:
                lifeline.write(b"K")
            lifeline.close()
        limit_s = GRACE_S + supervise.TERM_GRACE_S + supervise.KILL_LIMIT_S + 5.0
        try:
            self._supervisor.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        self.died()
        if self._supervisor.returncode not in (0, 1) and self.pid is not None:
            self._kill_without_supervisor(self.pid)
        assert self._supervisor.stdout is not None
        self._supervisor.stdout.close()
        return self._left

    @staticmethod
    def _kill_without_supervisor(pid: int) -> None:
        """The supervisor itself was killed: end the engine's process group and offspring."""
        for victim in supervise.descendants(pid):
            with contextlib.suppress(OSError):
                os.kill(victim, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)

    def _log_of_this_start(self) -> str:
        try:
            with self.log_path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self.log_start_bytes, size - 200_000))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def _read_events(self) -> None:
        pipe = self._supervisor.stdout
        assert pipe is not None
        while not pipe.closed:
            data = pipe.read(65536)  # None: nothing there now; b"": the supervisor ended
            if not data:
                break
            self._events += data
        *lines, self._events = self._events.split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["event"] == "started":
                self.pid = event["pid"]
            elif event["event"] == "exited":
                self._exit = EngineExit(event["exit_status"])
            elif event["event"] == "failed":
                self._exit = EngineExit(None)
                self._problem = f"could not run the engine's Python: {event['error']}"
            elif event["event"] == "stopped":
                self._left = event["left"]


def start_engine(
    launch: EngineLaunch,
    deadline_s: float = 900.0,
    progress: Callable[[BootProgress], None] = ignore_progress,
    clock: Clock | None = None,
    inherited: Mapping[str, str] | None = None,
) -> RunningEngine:
    """Start an engine and wait until it is healthy; a context manager that stops it.

    deadline_s: the longest wait, in seconds. inherited: the environment that the engine
    starts from (None: this process's). Whatever goes wrong here, Ctrl-C included, the
    engine is stopped before the error leaves.

    Raises:
        PortTaken, EngineNotStarted, NoRoomForLog, EngineDied, EngineNotReady.
    """
    clock = clock or SystemClock()
    if launch.port is not None:
        check_port(launch.port)
    if launch.command is None and not os.access(launch.python, os.X_OK):
        raise EngineNotStarted(
            f"expected an engine environment's Python at {str(launch.python)!r}, found no program "
            f"there; list the environments with: tabletune engine list"
        )
    for attempt in range(1, PORT_ATTEMPTS + 1):
        port = free_port() if launch.port is None else launch.port
        engine = RunningEngine(launch, port, inherited)
        try:
            engine.wait_until_healthy(deadline_s, progress, clock)
        except EngineDied as error:
            engine.stop()
            if "address already in use" not in "\n".join(error.tail).lower():
                raise
            if launch.port is not None:
                raise PortTaken(launch.port, "address already in use") from error
            if attempt == PORT_ATTEMPTS:
                raise
        except BaseException:
            engine.stop()
            raise
        else:
            return engine
    raise EngineError("unreachable")  # the loop returns or raises
