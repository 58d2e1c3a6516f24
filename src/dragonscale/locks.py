"""Files and folders that belong to one process at a time.

A lock is the kernel's (`flock`), so it goes with its process however that ends: nothing stale is left behind by a
kill or a power cut. Where a file system or a system has no such locks, nothing is locked and nobody is refused.
"""

import contextlib
import errno
import os
import platform
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NAME = ".dscale.lock"
"""The file in a folder that stands for all of it; it stays there, and only its lock says anything."""
_WITHOUT = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""What file systems without locks answer."""


class HeldError(Exception):
    """Another process has it; the text says which, as far as that is known."""


def lock(descriptor: int) -> bool:
    """Take an open file until it is closed; False if another has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _WITHOUT
    return True


def wait_for(descriptor: int) -> None:
    """Take an open file until it is closed, waiting while another has it."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def lock_folder(folder: Path) -> int:
    """Take a folder until the descriptor is closed, and leave word who has it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     held = lock_folder(Path(name))
    ...     try:
    ...         lock_folder(Path(name))
    ...     except HeldError as error:
    ...         print(str(error).startswith(f"process {os.getpid()} on "))
    ...     os.close(held)
    ...     os.close(lock_folder(Path(name)))
    True
    """
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    if not lock(descriptor):
        who = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise HeldError(who)
    with contextlib.suppress(OSError):  # a full disk has no room for a name, and the lock holds all the same
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
    return descriptor
