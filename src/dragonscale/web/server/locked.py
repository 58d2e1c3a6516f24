"""What a worker may not do, whatever it was asked: a hook that refuses files, programs and sockets.

`web/words.py` refuses every text that looks like a file before anything is opened. This is the second line: an audit
hook, which Python calls before it opens a file, starts a program or makes a socket, and which nothing can remove again.
A worker reads Python's own folders, the package and its private folder, and writes in that folder alone. It is no
sandbox against code that runs in it (nothing typed on the page is run), but a guard against a path that slipped
through.
"""

import errno
import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

PACKAGE = str(Path(__file__).resolve().parents[2])


class LockRules(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`locked.toml`; what each table holds is said there."""

    programs: tuple[str, ...]
    network: tuple[str, ...]
    never: tuple[str, ...]
    changes: tuple[str, ...]
    looks: tuple[str, ...]
    devices: tuple[str, ...]
    system: tuple[str, ...]
    certificates: tuple[str, ...]


RULES = msgspec.toml.decode(Path(__file__).with_name("locked.toml").read_bytes(), type=LockRules)
_DEVICES = frozenset({os.devnull, *RULES.devices})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def python_folders() -> tuple[str, ...]:
    """Where Python and its packages are."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, PACKAGE}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    folders |= {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {entry for entry in sys.path if entry and os.path.isabs(entry)}  # editable installs add theirs
    wide = {
        os.path.realpath(folder)
        for folder in ("/", os.path.expanduser("~"), tempfile.gettempdir(), "/tmp", "/etc", "/home")
    }
    return tuple(sorted({os.path.realpath(folder) for folder in folders if folder} - wide))


class WorkerLock:
    """The rules as an audit hook."""

    def __init__(
        self, folder: str, readable: Iterable[str] = (), writable: Iterable[str] = (), network: bool = False
    ) -> None:
        self.writable = _roots((folder, *writable))
        extra = RULES.certificates if network else ()
        self.readable = (*self.writable, *python_folders(), *_roots(readable), *RULES.system, *extra)
        self.network = network

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            self._open(*arguments)
        elif event.startswith(RULES.programs):
            raise _refused("no programs are started for the page")
        elif event.startswith(RULES.network):
            if not self.network:
                raise _refused("the network is not used for the page")
        elif event.startswith(RULES.changes):
            for path in arguments[:2]:
                if isinstance(path, str | bytes | os.PathLike):
                    self._must(path, self.writable)
        elif event.startswith(RULES.looks):
            self._must(arguments[0] if arguments else ".", self.readable)
        elif event.startswith(RULES.never) and not (event == "ctypes.dlopen" and self._own_library(arguments)):
            raise _refused("this is not done for the page")

    def _open(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int):
            return  # a descriptor that is open already
        writes = bool(flags & _WRITES) if isinstance(flags, int) else any(letter in (mode or "r") for letter in "wax+")
        self._must(path, self.writable if writes else self.readable)

    def _own_library(self, arguments: tuple[Any, ...]) -> bool:
        """Libraries of Python's packages are loaded as they are imported; `None` is the process itself."""
        name = arguments[0] if arguments else None
        return name is None or _within(name, self.readable)

    def _must(self, path: Any, roots: tuple[str, ...]) -> None:
        if isinstance(path, int):
            return
        if not _within(path, roots):
            raise _refused("the page reads and writes no files of this machine")


def _within(path: Any, roots: tuple[str, ...]) -> bool:
    try:
        text = os.fsdecode(path)
        resolved = text if text in _DEVICES else os.path.realpath(text)
    except (TypeError, ValueError):  # a NUL in it
        return False
    return resolved in _DEVICES or any(
        resolved == root or resolved.startswith(root.rstrip("/") + "/") for root in roots
    )


def _roots(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) for path in paths if path)


def _refused(sentence: str) -> PermissionError:
    # an error of the system's kind, so that whoever can do without the file goes on without it
    return PermissionError(errno.EACCES, sentence)


def lock(folder: str, readable: Iterable[str] = (), writable: Iterable[str] = (), network: bool = False) -> None:
    """Lock this process for good."""
    sys.dont_write_bytecode = True
    sys.addaudithook(WorkerLock(folder, readable, writable, network))
