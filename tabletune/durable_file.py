"""Files that are written whole or not at all, and stay written, and are read without waiting.

Standard library only, so that an engine may import it too.
"""

import contextlib
import errno
import os
import pathlib
import stat
import uuid
from typing import BinaryIO

#: How the name of a file that is being written begins. Readers ignore such files. Where a lock
#: tells that nobody writes, the next writer may remove them (store/durable.py).
TEMPORARY_PREFIX = ".tmp-"

_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP}


def write_durably(path: pathlib.Path, data: bytes, mode: int | None = None) -> None:
    """Write a file so that readers and a power cut see it whole or not at all.

    Of two writers at once the later one wins. Folders that are missing are made.

    Args:
        mode: the file's permissions, such as 0o600, from its first byte on; None leaves them to
            the process's umask.

    Raises:
        OSError: it could not be written; a file that was there before is untouched.
    """
    make_folder(path.parent)
    temporary = path.parent / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)  # past the umask
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def open_to_read(path: pathlib.Path) -> BinaryIO:
    """Open a file to read bytes; a pipe or device in its place is an error, not an endless wait.

    Raises:
        OSError: as `open`; with EINVAL where it is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a pipe, socket or device, not a file", str(path))


def make_folder(folder: pathlib.Path) -> None:
    """Create a folder and its parents, each durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: pathlib.Path) -> None:
    """Make a folder's entries durable, where the file system can and this user may read it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)
