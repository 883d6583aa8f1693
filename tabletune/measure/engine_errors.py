"""Errors of starting and running an engine.

EngineError
 ├─ PortTaken          the port asked for belongs to another program
 ├─ EngineNotStarted   no process could be made at all
 │   └─ NoRoomForLog   because the disk of its log is full
 ├─ EngineDied         the process ended, in its start or later
 └─ EngineNotReady     it lives, but did not become healthy in time
"""

import pathlib
from collections.abc import Sequence


class EngineError(Exception):
    """An engine could not be started or did not stay alive."""

    @property
    def first_line(self) -> str:
        """What happened, without the log's last lines and what to do."""
        return str(self).splitlines()[0]


class PortTaken(EngineError):
    """The port asked for is in use. Attributes: port."""

    def __init__(self, port: int, reason: str) -> None:
        self.port = port
        super().__init__(
            f"expected port {port} on 127.0.0.1 to be free, found it taken ({reason}); "
            f"end the program that uses it, choose another port, or leave it out to get a free one"
        )


class EngineNotStarted(EngineError):
    """No engine process could be made: wrong Python path, log file not writable."""


class NoRoomForLog(EngineNotStarted):
    """The disk of an engine's log is full, so no engine was started. Attributes: log_path.

    Another setting of the engine would meet the same.
    """

    def __init__(self, log_path: pathlib.Path, reason: str) -> None:
        self.log_path = log_path
        super().__init__(
            f"expected room for the engine's log at {str(log_path)!r}, found none ({reason}); free "
            f"some space or choose another folder, then run the same command again: what was "
            f"measured is kept"
        )


def _with_log(message: str, hint: str, log_path: pathlib.Path, tail: Sequence[str]) -> str:
    shown = "\n  ".join(tail) if tail else "(the log is empty)"
    return (
        message + (f"\n{hint}" if hint else "") + f"\nThe log's last lines ({log_path}):\n  {shown}"
    )


class EngineDied(EngineError):
    """The engine ended by itself.

    Attributes: exit_status (negative: the signal that ended it; None: unknown, or its
    server process lives on without an engine), while_doing, cause (the exception it
    logged, or ""), hint, log_path, tail (the log's last lines).
    """

    def __init__(
        self,
        exit_status: int | None,
        while_doing: str,
        cause: str,
        hint: str,
        log_path: pathlib.Path,
        tail: Sequence[str],
    ) -> None:
        self.exit_status = exit_status
        self.while_doing = while_doing
        self.cause = cause
        self.hint = hint
        self.log_path = log_path
        self.tail = list(tail)
        how = (
            "reported a fatal error" if exit_status is None else f"ended with status {exit_status}"
        )
        super().__init__(
            _with_log(
                f"the engine {how} while {while_doing}" + (f": {cause}" if cause else ""),
                hint,
                log_path,
                tail,
            )
        )


class EngineNotReady(EngineError):
    """The engine did not become healthy in time, and was stopped.

    Attributes: waited_s, phase, hint, log_path, tail.
    """

    def __init__(
        self,
        waited_s: float,
        phase: str,
        hint: str,
        log_path: pathlib.Path,
        tail: Sequence[str],
    ) -> None:
        self.waited_s = waited_s
        self.phase = phase
        self.hint = hint
        self.log_path = log_path
        self.tail = list(tail)
        super().__init__(
            _with_log(
                f"the engine was not healthy after {waited_s:.0f} s (last phase: {phase}); it was "
                f"stopped. If it was still making progress, allow more time",
                hint,
                log_path,
                tail,
            )
        )
