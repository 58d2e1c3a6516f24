"""KV pages on their way from a prefill worker to a decode worker: files in shared memory, of bounded size.

The front owns the folder. It takes room for a request before a prefill worker computes it, names the file, and frees
both when the decode worker has read it or the request is over, whatever ended it. A worker that finds the front gone
removes the folder; what a machine's fall left there is removed by the next server.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy

SHARED = Path("/dev/shm")
PREFIX = "dragonscale-"
PART = 0.5
"""Of the shared memory that is free, what pages may take."""


class HandoverRoom:
    """The folder of the files, and who has how much of it."""

    def __init__(self, limit: int = 0) -> None:
        root = SHARED if SHARED.is_dir() else Path(tempfile.gettempdir())
        for old in root.glob(f"{PREFIX}*-pages-*"):
            pid = old.name.removeprefix(PREFIX).split("-")[0]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(old, ignore_errors=True)
        self.folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-pages-", dir=root)
        self.limit = limit or int(PART * shutil.disk_usage(root).free)
        self.taken: dict[str, int] = {}

    def take(self, name: str, size: int) -> bool:
        """Whether there is room; one alone always has it."""
        if self.taken and sum(self.taken.values()) + size > self.limit:
            return False
        self.taken[name] = size
        return True

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def free(self, name: str) -> None:
        self.taken.pop(name, None)
        Path(self.path(name)).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what a worker that died may have written after it was given up."""
        for name in set(os.listdir(self.folder)) - set(self.taken):
            Path(self.path(name)).unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def write_arrays(path: str, arrays: Sequence[numpy.ndarray]) -> None:
    """The arrays one after the other behind a line that says what they are."""
    head = msgspec.json.encode([(one.dtype.name, one.shape) for one in arrays])
    with open(path, "wb") as file:
        file.write(head + b"\n")
        for one in arrays:
            file.write(numpy.ascontiguousarray(one).view(numpy.uint8).reshape(-1).data)


def read_arrays(path: str) -> list[numpy.ndarray]:
    """What `write_arrays` wrote, mapped and not copied."""
    with open(path, "rb") as file:
        head = file.readline()
    whole, at, found = numpy.memmap(path, numpy.uint8, "r"), len(head), []
    for name, shape in msgspec.json.decode(head, type=list[tuple[str, tuple[int, ...]]]):
        kind = numpy.dtype(name)
        size = int(numpy.prod(shape)) * kind.itemsize
        found.append(whole[at : at + size].view(kind).reshape(shape))
        at += size
    return found
