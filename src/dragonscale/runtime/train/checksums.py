"""Checksums of a checkpoint's files: what is read is what was written, to the last bit.

Numbers of a state look like any others, so a bit that flips on a disk goes unnoticed: a run goes on
along another loss curve. So when all files of a checkpoint are written, in the background and before
it gets its name, each is read once and its SHA-256 kept beside them; before a restore all are
compared. Hashing leaves Python to the other threads and runs at the speed of several cores. A
checkpoint without checksums, as earlier versions wrote them, is taken as it is.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dragonscale.files import write_file

SUMS = "checksums.json"
MARKS = (SUMS, "_CHECKPOINT_METADATA", "commit_success.txt")
"""Not summed: ourselves, and what Orbax writes when a checkpoint gets its name. The state is in none."""
_THREADS = 4


def write_sums(folder: Path) -> None:
    """Keep the checksums of all files in a folder, if they are not kept yet."""
    if not (folder / SUMS).exists():
        names = sorted(_names(folder))
        sums = _map(lambda name: _sum(folder / name), names)
        write_file(folder / SUMS, json.dumps(dict(zip(names, sums, strict=True)), indent=0) + "\n", "The checksums")


def damaged(folder: Path) -> str:
    """The first file of a folder that is not what was written; empty if all are, or none was kept."""
    try:
        sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
        names = [str(name) for name in sums]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, TypeError):
        return SUMS
    found = _map(lambda name: _sum(folder / name), names)
    return next((name for name, sum_ in zip(names, found, strict=True) if sums[name] != sum_), "")


def _names(folder: Path) -> Iterable[str]:
    for place, _, files in os.walk(folder):
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in files if name not in MARKS)


def _sum(path: Path) -> str:
    """What a file holds, in short; nothing where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _map(work: Callable[[str], str], names: list[str]) -> list[str]:
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(work, names))
