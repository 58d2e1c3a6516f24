"""The answers of a sweep as a file of JSON lines that grows: what is in it needs no answer again.

A line is written whole and at once, so that whatever stops a sweep leaves lines that can be read; half a line, as a full
disk may leave it, is cut off before the next is written. Of two lines for the same entry the later one counts.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.reports.sweep.records import Answer


def read_answers(path: str) -> dict[str, Answer]:
    """The answers of a file by their keys; none where there is no file yet."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"The results {shorten(path)} cannot be read: {error.strerror}.") from None
    found: dict[str, Answer] = {}
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break  # the rest of a line that was never finished
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.MsgspecError:
            wrong = f"Line {number} of {shorten(path)} is no result of a sweep"
            raise InputError(f"{wrong}; give --out another file.") from None
        found[answer.key] = answer
    return found


def append_answers(path: str, answers: Iterable[Answer], each: Callable[[Answer], None]) -> None:
    """Write answers as they come; `each` is told of every one that is safely there."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"The results cannot be written to {shorten(path)}: {error.strerror}.") from None
    try:
        _cut(file)
        for answer in answers:
            line = msgspec.json.encode(answer) + b"\n"
            while line:
                line = line[os.write(file, line) :]
            each(answer)
    finally:
        os.close(file)


def _cut(file: int) -> None:
    """Go to the end of the last whole line, and cut off what follows it."""
    end = os.lseek(file, 0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        place = os.pread(file, end - start, start).rfind(b"\n")
        if place >= 0:
            end = start + place + 1
            break
        end = start
    os.ftruncate(file, end)
    os.lseek(file, end, os.SEEK_SET)
