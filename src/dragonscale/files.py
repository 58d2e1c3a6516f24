"""Output files, written whole or not at all.

Every file that a command writes for its user goes through `write_file`: plans, charts, timelines,
traces, pages, tables of scores. The bytes go to a file beside the target under another name, reach
the disk, and then take the target's name in one step. So a full disk, a kill or Ctrl-C leaves what
was there before, whole, and nobody ever reads half a file.

What a user expects of a plain write stays true. An existing file keeps its permissions and one that
is read-only is refused; a symbolic link stays a link and its target is replaced; devices, pipes and
`/dev/stdout` are written to as they are; where a folder takes no new files but its file may be
written, it is written in place.

An answer does not depend on its files: commands print it first and write after, `write_all` runs
every writer, and what could not be written is one sentence at the end.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from dragonscale.errors import InputError, shorten

_DESCRIPTORS = {"/dev/stdout": 1, "/dev/stderr": 2}
CACHE = "DRAGONSCALE_CACHE"


def user_cache(name: str) -> Path:
    """The folder of what is kept from one run to the next: in `DRAGONSCALE_CACHE`, or the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(CACHE) or Path(home) / "dragonscale") / name


def write_file(path: str | Path, data: str | bytes, what: str) -> None:
    """Write a file whole; `what` begins the sentence if that fails, such as "The plan".

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(f"{folder}/plan.toml", "tensor = 8", "The plan")
    ...     os.listdir(folder), Path(folder, "plan.toml").read_text()
    (['plan.toml'], 'tensor = 8')
    >>> write_file("nowhere/plan.toml", "tensor = 8", "The plan")
    Traceback (most recent call last):
    dragonscale.errors.InputError: The plan cannot be written to 'nowhere/plan.toml': No such file or directory.
    """
    name = os.fspath(path)
    try:
        content = data if isinstance(data, bytes) else data.encode("utf-8")
        _write(name, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{what} cannot be written to {shorten(name, 200)}: {reason}.") from None
    except UnicodeEncodeError:
        raise InputError(
            f"{what} cannot be written to {shorten(name, 200)}: it has characters that are no text."
        ) from None
    except ValueError as error:  # a NUL in the name
        raise InputError(f"{what} cannot be written to {shorten(name, 200)}: {error}.") from None


def write_all(*writers: Callable[[], None]) -> None:
    """Run every writer; what could not be written is said at the end, and stops none of the others.

    >>> done = []
    >>> def fails():
    ...     raise InputError("The chart cannot be written.")
    >>> write_all(fails, lambda: done.append("plan"))
    Traceback (most recent call last):
    dragonscale.errors.InputError: The chart cannot be written.
    >>> done
    ['plan']
    """
    sentences: list[str] = []
    for writer in writers:
        try:
            writer()
        except InputError as error:
            sentences.append(str(error))
    if sentences:
        raise InputError(" ".join(sentences))


def is_stream(path: str | Path) -> bool:
    """Whether a path is a device, a pipe or an open descriptor, which have no name to end in.

    >>> is_stream("/dev/null"), is_stream("chart.png")
    (True, False)
    """
    name = os.fspath(path)
    if _descriptor(name) is not None:
        return True
    try:
        mode = os.stat(name).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def open_stream(path: str | Path) -> int:
    """A descriptor to write to a device, a pipe or what is open already."""
    descriptor = _descriptor(os.fspath(path))
    if descriptor is None:
        return os.open(path, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # what was printed before comes before
        if stream is not None:
            stream.flush()
    return os.dup(descriptor)


def _write(name: str, content: bytes) -> None:
    if not name:
        raise FileNotFoundError(errno.ENOENT, "the name is empty")
    if is_stream(name):
        return _pour(open_stream(name), content)
    target = os.path.realpath(name)
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return _replace(target, content, None)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if not os.access(os.path.dirname(target), os.W_OK | os.X_OK):
        return _pour(os.open(target, os.O_WRONLY | os.O_TRUNC), content)
    return _replace(target, content, found)


def _descriptor(name: str) -> int | None:
    """The number of an open descriptor that a path stands for. Such a file is never renamed over:
    the shell that redirected it would go on writing to the old one."""
    numbered = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d{1,9})", name)
    return int(numbered[1]) if numbered else _DESCRIPTORS.get(name)


def _replace(target: str, content: bytes, before: os.stat_result | None) -> None:
    folder = os.path.dirname(target)
    beside = os.path.join(folder, f".dscale-{secrets.token_hex(8)}.tmp")
    # Made with the usual permissions, less those that the user's umask takes away.
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if before is not None and hasattr(os, "fchmod"):  # not on Windows before Python 3.13
            os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            with contextlib.suppress(OSError):  # only root may give a file away
                os.fchown(descriptor, before.st_uid, before.st_gid)
        _pour(descriptor, content)
        os.replace(beside, target)
    except BaseException:  # Ctrl-C too
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    _settle(folder)


def _pour(descriptor: int, content: bytes) -> None:
    """Write all of it, see it on the disk where there is one, and close."""
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):  # pipes have no disk
                raise
    finally:
        os.close(descriptor)


def _settle(folder: str) -> None:
    """Have the folder's new entry on the disk too; not every file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
