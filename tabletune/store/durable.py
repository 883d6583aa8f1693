"""What a folder store needs besides durable_file.py: errors, a lock, and tidying up."""

import contextlib
import errno
import fcntl
import os
import pathlib
import time
from collections.abc import Callable, Iterator

from tabletune.durable_file import TEMPORARY_PREFIX
from tabletune.store.errors import StoreBusy, StoreError, StoreFull, StoreUnwritable

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextlib.contextmanager
def store_errors(path: pathlib.Path, what: str) -> Iterator[None]:
    """Turn an `OSError` into the `StoreError` that says what to do about it."""
    try:
        yield
    except OSError as error:
        expected = f"to {what} {path}"
        if error.errno in _FULL:
            raise StoreFull(
                expected,
                f"no space left ({error.strerror})",
                "free some space and try again; what was in force before still is",
            ) from error
        if error.errno in _DENIED:
            raise StoreUnwritable(
                expected,
                f"it is not allowed ({error.strerror})",
                "give this user permission, or choose another store",
            ) from error
        raise StoreError(expected, repr(error), "look at the disk that it is on") from error


def remove_temporaries(folder: pathlib.Path) -> None:
    """Remove what writers that were killed left in a folder. Only under the lock."""
    if not folder.is_dir():
        return
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        with contextlib.suppress(OSError):  # it costs space and nothing else
            path.unlink()


@contextlib.contextmanager
def exclusive_lock(
    path: pathlib.Path,
    timeout_s: float,
    sleep: Callable[[float], None] = time.sleep,
    interval_s: float = 0.02,
) -> Iterator[None]:
    """Hold the lock of `path`. The system lets go of it when the process dies, however.

    Raises:
        StoreBusy: another process kept it for `timeout_s`.
        OSError: the lock file cannot be opened or locked.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        waited_s = 0.0
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waited_s >= timeout_s:
                    raise StoreBusy(
                        f"the lock {path} within {timeout_s:g} s",
                        "that another process holds it",
                        "see which one does (`fuser` names it) and whether it hangs",
                    ) from None
                sleep(interval_s)
                waited_s += interval_s
        yield
    finally:
        os.close(descriptor)  # closing releases the lock
