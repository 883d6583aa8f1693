"""One GPU, one job: a lock on this host per GPU, held by the operating system.

A concurrency limit of a flow engine can leak a slot or give one out twice; a lock of the
operating system cannot: it is gone exactly when the process is. Beside each lock lies who
holds it, for the error of whoever comes second.
"""

import contextlib
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, Final

from filelock import FileLock, Timeout

from tabletune.durable_file import write_durably
from tabletune.maintain.processes import ProcessId, own_process
from tabletune.measure.clock import Clock, SystemClock

#: Where locks are: the same for every user of the host.
VARIABLE: Final = "TT_LOCK_FOLDER"
CPU: Final = "cpu"
POLL_S: Final = 1.0
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


class GpuBusy(RuntimeError):
    """Another process holds the GPU. Attributes: gpu, holder (in words)."""

    def __init__(self, gpu: str, holder: str, waited_s: float) -> None:
        self.gpu, self.holder = gpu, holder
        super().__init__(
            f"expected {gpu} to be free within {waited_s:g} s, found it held by {holder}; wait for "
            "it, or stop that process yourself if it hangs"
        )


def lock_folder(environment: dict[str, str] | None = None) -> pathlib.Path:
    """The folder of locks: TT_LOCK_FOLDER, else one in the system's temporary folder."""
    given = (os.environ if environment is None else environment).get(VARIABLE)
    return pathlib.Path(given) if given else pathlib.Path(tempfile.gettempdir()) / "tabletune-locks"


@contextlib.contextmanager
def gpu_lock(
    gpus: Iterable[str],
    what: str,
    wait_s: float = 0.0,
    clock: Clock | None = None,
    folder: pathlib.Path | None = None,
) -> Iterator[None]:
    """Hold every GPU of `gpus` (UUIDs), or this host's processor where there is none.

    They are taken in one order by everybody, so that two jobs never wait for each other.

    Args:
        what: what the holder does, in words, for others to read.
        wait_s: how long to wait in all.

    Raises:
        GpuBusy: one is held for longer; nothing is held then.
        OSError: the folder of locks cannot be written.
    """
    folder, clock = folder or lock_folder(), clock or SystemClock()
    make_shared(folder)
    names = sorted(set(gpus)) or [CPU]
    end_s = clock.now_s() + wait_s
    with contextlib.ExitStack() as held:
        for name in names:
            path = folder / f"gpu-{_UNSAFE.sub('_', name)}.lock"
            _acquire(path, name, clock, end_s, wait_s, held)
            _tell(path, what, clock)
            held.callback(_untell, path)
        yield


def _acquire(
    path: pathlib.Path,
    name: str,
    clock: Clock,
    end_s: float,
    wait_s: float,
    held: contextlib.ExitStack,
) -> None:
    lock = FileLock(path, mode=0o666)
    while True:
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            left_s = end_s - clock.now_s()
            if left_s <= 0:
                raise GpuBusy(name, holder_words(path), wait_s) from error
            clock.sleep_s(min(POLL_S, left_s))
        else:
            held.callback(lock.release)
            return


def holder_words(lock: pathlib.Path) -> str:
    """Who holds a lock, in words, as far as it is known."""
    try:
        facts: Any = json.loads(_beside(lock).read_bytes()[:4096])
        who = ProcessId(**facts["process"])
        words = f"process {who.pid} ({facts['what']}, since {facts['since']})"
        return words if who.lives() else f"a process that did not tell; before it {words}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that did not tell who it is"


def _tell(lock: pathlib.Path, what: str, clock: Clock) -> None:
    """Write who holds the lock. Only a help for people: failing to is no reason to stop."""
    facts = {"process": own_process().facts(), "what": what, "since": clock.utc()}
    with contextlib.suppress(OSError):
        write_durably(_beside(lock), json.dumps(facts).encode(), mode=0o644)


def _untell(lock: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        _beside(lock).unlink()


def _beside(lock: pathlib.Path) -> pathlib.Path:
    return lock.with_suffix(".json")


def make_shared(folder: pathlib.Path) -> None:
    """The folder, for every user of the host, as the system's temporary folder is."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # another user's: it is shared already
        folder.chmod(0o1777)
