"""Processes by what makes them one: number, start and boot of the machine.

A number alone is given out again to another process later.
"""

import os
import pathlib
from dataclasses import asdict, dataclass
from typing import Any

BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class ProcessId:
    """`start_ticks`: when it started, in the kernel's ticks since `boot`."""

    pid: int
    start_ticks: int
    boot: str

    def lives(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return self.boot == boot_id() and start_ticks(self.pid) == self.start_ticks

    def facts(self) -> dict[str, Any]:
        """For a JSON file."""
        return asdict(self)


def own_process() -> ProcessId:
    """This process."""
    pid = os.getpid()
    return ProcessId(pid, start_ticks(pid) or 0, boot_id())


def boot_id() -> str:
    """Which boot of the machine this is; empty where the system does not say."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When a living process started; None for a dead one and a zombie."""
    try:
        # The command in parentheses may itself hold spaces and parentheses.
        fields = pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def environment_of(pid: int) -> dict[bytes, bytes]:
    """The variables that a process was started with; empty where they may not be read."""
    try:
        data = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def all_processes() -> list[int]:
    """The numbers of all processes that the system shows."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []
