"""What each exit status means; documented in docs/cli.md."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit statuses of the command line."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    ENGINE = 3
    MEASUREMENT = 4
    VERDICT_FAILED = 5
    STORE = 6
    RECORD = 7
    UNSUPPORTED = 8
    REPLAY_DIFFERS = 9
    INTERRUPTED = 130
