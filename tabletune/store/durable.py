"""Durable, atomic file writes, and a lock between processes."""

import contextlib
import errno
import fcntl
import os
import pathlib
import time
import uuid
from collections.abc import Callable, Iterator

from tabletune.store.errors import StoreBusy, StoreError, StoreFull, StoreUnwritable

#: How the name of a file that is being written begins. Readers ignore such files; they are
#: removed by the next writer, which holds the lock and so knows that nobody writes them.
TEMPORARY_PREFIX = ".tmp-"

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP}


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


def write_durably(path: pathlib.Path, data: bytes) -> None:
    """Write a file so that readers and a power cut see it whole or not at all.

    Raises:
        OSError: it could not be written; a file that was there before is untouched.
    """
    make_folder(path.parent)
    temporary = path.parent / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def make_folder(folder: pathlib.Path) -> None:
    """Create a folder and its parents, each durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: pathlib.Path) -> None:
    """Make a folder's entries durable, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


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
