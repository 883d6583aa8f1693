"""Finds engines that a dead run left behind, and stops them; never anything else.

An engine ends with its run by itself (measure/supervise.py), unless its supervisor is killed
too. So a run leaves a marker: a file with a secret word and who the run is. Everything that
the run starts inherits the word as a variable, in whatever session or group it ends up. A
process is a left-over only if it carries the word of a marker whose run is dead.
"""

import contextlib
import json
import os
import pathlib
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tabletune.durable_file import write_durably
from tabletune.maintain.gpu_lock import lock_folder, make_shared
from tabletune.maintain.processes import (
    ProcessId,
    all_processes,
    environment_of,
    own_process,
    start_ticks,
)
from tabletune.measure.clock import Clock, SystemClock

#: The variable that carries the word. Not TABLETUNE_…: engines refuse such names they don't know.
VARIABLE: Final = "TT_RUN_WORD"
TERM_GRACE_S: Final = 5.0
KILL_LIMIT_S: Final = 20.0
#: A dead run's own supervisor needs this long to stop its engine; the reaper lets it.
SUPERVISOR_S: Final = 15.0
POLL_S: Final = 0.2
_WORD_BYTES: Final = 16


@dataclass(frozen=True)
class Marker:
    """A run's marker file."""

    path: pathlib.Path
    word: str
    owner: ProcessId
    what: str
    since: str


@dataclass(frozen=True)
class Reaped:
    """What was found: words of the dead runs, processes stopped, and those that would not end."""

    runs: tuple[str, ...] = ()
    stopped: tuple[int, ...] = ()
    left: tuple[int, ...] = ()


@contextlib.contextmanager
def marked_run(
    what: str, folder: pathlib.Path | None = None, clock: Clock | None = None
) -> Iterator[Marker]:
    """Mark what this process starts meanwhile. One run at a time in a process.

    Args:
        folder: of markers; None takes this host's.

    Raises:
        RuntimeError: this process is inside a marked run already.
        OSError: the folder cannot be written.
    """
    folder, clock = folder or marker_folder(), clock or SystemClock()
    if VARIABLE in os.environ and _is_mine(folder, os.environ[VARIABLE]):
        raise RuntimeError("expected one marked run at a time in a process, found another")
    word = secrets.token_hex(_WORD_BYTES)
    marker = Marker(folder / f"run-{word}.json", word, own_process(), what, clock.utc())
    _write(marker)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = word
    try:
        yield marker
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        # Something that outlives this run is found as long as its marker is there.
        if not _carriers(word):
            marker.path.unlink(missing_ok=True)


def reap(
    folder: pathlib.Path | None = None,
    clock: Clock | None = None,
    patience_s: float = SUPERVISOR_S,
) -> Reaped:
    """Stop what dead runs left behind. Call it while holding the GPU's lock.

    Args:
        folder: of markers; None takes this host's.
        patience_s: how long their own supervisors get to do it themselves.
    """
    folder, clock = folder or marker_folder(), clock or SystemClock()
    dead = [marker for marker in markers(folder) if not marker.owner.lives()]
    end_s = clock.now_s() + patience_s
    while clock.now_s() < end_s and any(_carriers(marker.word) for marker in dead):
        clock.sleep_s(POLL_S)
    stopped: set[int] = set()
    left: list[int] = []
    for marker in dead:
        stopped |= set(_stop(marker.word, signal.SIGTERM, TERM_GRACE_S, clock))
        stopped |= set(_stop(marker.word, signal.SIGKILL, KILL_LIMIT_S, clock))
        remaining = _carriers(marker.word)
        left += remaining
        if not remaining:
            with contextlib.suppress(OSError):  # another user's
                marker.path.unlink(missing_ok=True)
    words = tuple(f"{marker.what}, since {marker.since}" for marker in dead)
    return Reaped(words, tuple(sorted(stopped - set(left))), tuple(left))


def marker_folder() -> pathlib.Path:
    """Where this host's runs put their markers."""
    return lock_folder() / "runs"


def markers(folder: pathlib.Path) -> list[Marker]:
    """All markers that can be read; others are not touched."""
    found: list[Marker] = []
    for path in sorted(folder.glob("run-*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            facts = json.loads(path.read_bytes()[:4096])
            word = facts["word"]
            if path.name != f"run-{word}.json" or len(bytes.fromhex(word)) != _WORD_BYTES:
                continue
            owner = ProcessId(**facts["owner"])
            found.append(Marker(path, word, owner, str(facts["what"]), str(facts["since"])))
    return found


def _is_mine(folder: pathlib.Path, word: str) -> bool:
    me = own_process()
    return any(marker.word == word and marker.owner == me for marker in markers(folder))


def _write(marker: Marker) -> None:
    facts = {
        "word": marker.word,
        "owner": marker.owner.facts(),
        "what": marker.what,
        "since": marker.since,
    }
    folder = marker.path.parent
    make_shared(folder.parent)
    make_shared(folder)
    write_durably(marker.path, json.dumps(facts).encode(), mode=0o600)


def _carriers(word: str) -> list[int]:
    """Living processes that were started with the word, this one left out."""
    me, value = os.getpid(), word.encode()
    return [
        pid
        for pid in all_processes()
        if pid != me
        and environment_of(pid).get(VARIABLE.encode()) == value
        and start_ticks(pid) is not None
    ]


def _stop(word: str, number: signal.Signals, limit_s: float, clock: Clock) -> list[int]:
    """Signal every carrier until none is left or the time is over; those that were signalled."""
    signalled: list[int] = []
    end_s = clock.now_s() + limit_s
    while carriers := _carriers(word):
        for pid in carriers:
            if number is signal.SIGKILL or pid not in signalled:
                _signal(pid, word, number)
                signalled.append(pid)
        if clock.now_s() >= end_s:
            break
        clock.sleep_s(POLL_S)
    return signalled


def _signal(pid: int, word: str, number: signal.Signals) -> None:
    """Signal a process if it is still the one that carries the word."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            # Looked at again through a handle that no later process of this number can have.
            if environment_of(pid).get(VARIABLE.encode()) == word.encode():
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
