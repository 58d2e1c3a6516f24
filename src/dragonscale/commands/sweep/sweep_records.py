"""The records of `dscale sweep`: what is asked, what was answered, the answer to the whole, and the file that answers
are kept in."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec

from dragonscale.commands.record import Record
from dragonscale.errors import INTERRUPTED, MISSED, TERMINATED, InputError, shorten
from dragonscale.evidence.verify.records import SweepScore
from dragonscale.files import is_stream, open_stream
from dragonscale.locks import lock

COMMANDS = ("verify", "train", "serve", "simulate")


class Entry(msgspec.Struct, frozen=True):
    """One question of a grid: a command and its flags, by name."""

    command: Literal["verify", "train", "serve", "simulate"]
    asks: dict[str, Any]

    @property
    def key(self) -> str:
        """A name for what is asked, the same for equal entries.

        >>> Entry("train", {"model": "a", "on": "b"}).key == Entry("train", {"on": "b", "model": "a"}).key
        True
        """
        return f"{self.command}-{hashlib.sha256(msgspec.json.encode(self, order='sorted')).hexdigest()[:20]}"


class SweepAnswer(msgspec.Struct, frozen=True):
    """A line of the results: the entry, the record that its command prints as JSON, or why there is none."""

    key: str
    command: str
    asks: dict[str, Any]
    seconds: float
    failed: str = ""
    answer: dict[str, Any] | None = None


class SweepReport(Record):
    """A whole sweep. `known` entries were answered before; `lines` (`rows` in JSON) are flat, one for each entry,
    in the grid's order. `stopped` says that a signal ended it before its end, `terminated` that this was SIGTERM."""

    CHARTS: ClassVar[tuple[str, ...]] = ("auto", "lines", "heat", "bars")

    grid: str
    entries: int
    known: int
    answered: int
    failed: int
    seconds: float
    lines: list[dict[str, Any]] = msgspec.field(name="rows")
    verify: SweepScore | None = None
    stopped: bool = False
    terminated: bool = False

    @property
    def exit_code(self) -> int:
        """4 where an entry failed or a verification differs; 130 where Ctrl-C ended it, 143 where SIGTERM did."""
        if self.terminated:
            return TERMINATED
        if self.stopped:
            return INTERRUPTED
        differing = self.verify is not None and "differs" in self.verify.verdicts
        if differing or self.failed:
            return MISSED
        return 0

    def counts(self) -> str:
        """How many entries there are, and what became of them."""
        return f"{self.entries} entries: {self.known} known before, {self.answered} answered now, {self.failed} failed"

    def answered_rows(self, command: str) -> list[dict[str, Any]]:
        """The rows of a command whose entries have an answer."""
        return [row for row in self.lines if row["command"] == command and not row["failed"]]

    def headline(self) -> str:
        return self.counts()

    def rows(self) -> list[dict[str, Any]]:
        return self.lines


# The answers of a sweep as a file of JSON lines that grows: what is in it needs no answer again.
#
# A line is written whole and at once, so that whatever stops a sweep leaves lines that can be read; half a line, as a
# full disk may leave it, is cut off before the next is written. Of two lines for the same entry the later one counts. A
# file belongs to one sweep at a time: it is locked while it is open.


@dataclass(frozen=True)
class AnswerFile:
    """An open file of answers; `known` were in it when it was opened, by their keys."""

    path: str
    descriptor: int
    known: dict[str, SweepAnswer]

    def append(self, answer: SweepAnswer) -> None:
        """Write one answer, at once. On a full disk what is there stays, and the sweep ends."""
        line = msgspec.json.encode(answer) + b"\n"
        try:
            while line:
                line = line[os.write(self.descriptor, line) :]
        except OSError as error:
            raise InputError(
                f"The results cannot be written to {shorten(self.path)}: {error.strerror}; what was "
                "answered before stays there, and the same --out goes on from it."
            ) from None


@contextlib.contextmanager
def open_answers(path: str) -> Iterator[AnswerFile]:
    """A file to go on with; refused if another sweep writes to it, or if it holds something else."""
    stream = is_stream(path)
    try:
        if stream:
            descriptor = open_stream(path)
        else:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"The results cannot be written to {shorten(path)}: {reason}.") from None
    try:
        if stream:  # what went into a pipe or a device is not there to be read
            yield AnswerFile(path, descriptor, {})
            return
        if not lock(descriptor):
            raise InputError(f"Another sweep is writing to {shorten(path)}; wait for it, or give --out another file.")
        answers = read_answers(path)
        _cut(descriptor)
        yield AnswerFile(path, descriptor, answers)
    finally:
        os.close(descriptor)


def read_answers(path: str) -> dict[str, SweepAnswer]:
    """The answers of a file by their keys; half a line at its end is no answer."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise InputError(f"The results {shorten(path)} cannot be read: {error.strerror}.") from None
    answers: dict[str, SweepAnswer] = {}
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break  # the rest of a line that was never finished
        try:
            answer = msgspec.json.decode(line, type=SweepAnswer)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            wrong = f"Line {number} of {shorten(path)} is no result of a sweep"
            raise InputError(f"{wrong}; give --out another file.") from None
        answers[answer.key] = answer
    return answers


def _cut(file: int) -> None:
    """Go to the end of the last whole line, and cut off what follows it."""
    end = os.lseek(file, 0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        line_end = os.pread(file, end - start, start).rfind(b"\n")
        if line_end >= 0:
            end = start + line_end + 1
            break
        end = start
    os.ftruncate(file, end)
    os.lseek(file, end, os.SEEK_SET)
