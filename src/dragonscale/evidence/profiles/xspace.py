"""The file of XProf, piece by piece: planes with their tables, lines with their events as columns.

A file (`XSpace`) is a row of planes (a device, the host, tables of programs). A plane has lines (a core's ops, a thread), and two tables: what its
events are (name, statistics that are the same each time) and what its statistics are called. An event is a number into the first table,
an offset and a duration in picoseconds, and statistics of its own. The tables stand behind the lines, so a plane is walked once for where its
parts lie, and its lines are read after that.

Most of a file is events, so their loop is the one place here that is written for speed: a regular expression takes an event's three
numbers apart, they stay bytes, and whole columns of them are made into numbers at once. Which op an event belongs to is one lookup of its table
entry and of those statistics that tell ops apart, still as bytes.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dragonscale.evidence.profiles.protobuf import (
    EIGHT,
    PIECE,
    VARINT,
    Broken,
    Buffer,
    Span,
    double,
    fields,
    gathered,
    signed,
    text,
    varint,
    varints,
)

StatValue = int | float | str | bytes
MOST_PARTS = 3_000_000
"""Lines, or entries of a table, of one plane; real ones have fewer than a tenth of it."""
_WINDOW = 1 << 22
_CHUNK = 1 << 16
_MOST_EVENT = 1 << 26
_MOST_KNOWN = 300_000
_ABSENT = b"\xff" * 9 + b"\x01"
"""-1 as a varint."""
_EVENT = re.compile(
    rb"\x22[\x80-\xff]?[\x00-\x7f](?:\x08([\x80-\xff]{0,9}[\x00-\x7f]))?(?:\x10([\x80-\xff]{0,9}[\x00-\x7f]))?"
    rb"(?:\x18([\x80-\xff]{0,9}[\x00-\x7f]))?",
    re.DOTALL,
)


@dataclass
class EntryText:
    """What a plane's table says of an event: its name, another to show, statistics that are the same each time."""

    name: str = ""
    shown: str = ""
    stats: dict[str, StatValue] = field(default_factory=dict)


@dataclass
class Plane:
    """A plane's parts, where they lie in the file; entries of its tables are read when they are asked for."""

    data: Buffer
    name: str
    lines: list[Span]
    entries: list[Span]
    labels: dict[int, str]
    own: list[Span]
    _read: dict[int, EntryText] = field(default_factory=dict)

    @cached_property
    def table(self) -> dict[int, Span]:
        """Where each entry of the table of events lies, by its number."""
        found: dict[int, Span] = {}
        for span in self.entries:
            key, value = _pair(self.data, span)
            if value is not None:
                found[key] = value
        return found

    def entry(self, number: int) -> EntryText:
        """An entry of the table of events; an empty one where the table has none."""
        known = self._read.get(number)
        if known is None:
            span = self.table.get(number)
            known = self._read[number] = _entry(self, span) if span else EntryText()
        return known

    def stats(self, spans: list[Span]) -> dict[str, StatValue]:
        """Statistics by name; the first of a name counts."""
        found: dict[str, StatValue] = {}
        for span in spans:
            name, value = self.stat(self.data, span)
            if name and value is not None:
                found.setdefault(name, value)
        return found

    def apart(self, pieces: tuple[bytes, ...]) -> dict[str, StatValue]:
        """Statistics of one event, taken out of the file."""
        found = dict(self.stat(each, (0, len(each))) for each in pieces)
        return {name: value for name, value in found.items() if name and value is not None}

    def stat(self, data: Buffer, span: Span) -> tuple[str, StatValue | None]:
        """The name and value of one statistic; a reference is looked up."""
        name, value = "", None
        for number, kind, raw in fields(data, *span):
            if isinstance(raw, tuple):
                value = text(data, raw) if number == 5 else data[raw[0] : raw[1]] if number == 6 else value
            elif number == 1 and kind == VARINT:
                name = self.labels.get(raw, "")
            elif number == 2 and kind == EIGHT:
                value = double(raw)
            elif number == 3:
                value = raw
            elif number == 4:
                value = signed(raw)
            elif number == 7:
                value = self.labels.get(raw, "")
        return name, value


def planes(data: Buffer) -> list[tuple[str, Span]]:
    """Names of the planes and where they lie."""
    found: list[tuple[str, Span]] = []
    for number, kind, value in fields(data, 0, len(data)):
        if number == 1 and kind == PIECE and isinstance(value, tuple):
            name = next((each for key, _, each in fields(data, *value) if key == 2 and isinstance(each, tuple)), None)
            found.append((text(data, name) if name else "", value))
            if len(found) > MOST_PARTS:
                raise Broken("more planes than any profile has")
    return found


def read_plane(data: Buffer, name: str, span: Span) -> Plane:
    """A plane, its parts found."""
    parts: dict[int, list[Span]] = {3: [], 4: [], 5: [], 6: []}
    count = 0
    for number, _, value in fields(data, *span):
        if isinstance(value, tuple) and number in parts:
            parts[number].append(value)
            count += 1
            if count > MOST_PARTS:
                raise Broken("more lines or table entries than any profile has")
    labels: dict[int, str] = {}
    for each in parts[5]:
        key, value = _pair(data, each)
        if value is not None:
            labels[key] = next(
                (text(data, raw) for number, _, raw in fields(data, *value) if number == 2 and isinstance(raw, tuple)),
                "",
            )
    return Plane(data, name, parts[3], parts[4], labels, parts[6])


def _pair(data: Buffer, span: Span) -> tuple[int, Span | None]:
    """Key and value of a map's entry."""
    key, found = 0, None
    for number, _, value in fields(data, *span):
        if number == 1 and isinstance(value, int):
            key = value
        elif number == 2 and isinstance(value, tuple):
            found = value
    return key, found


def _entry(plane: Plane, span: Span) -> EntryText:
    parts = gathered(plane.data, span)
    name, shown = (
        next((text(plane.data, each) for each in parts.get(key, []) if isinstance(each, tuple)), "") for key in (2, 4)
    )
    return EntryText(name, shown, plane.stats([each for each in parts.get(5, []) if isinstance(each, tuple)]))


@dataclass
class Columns:
    """Some events of a line. `op` is what the caller's lookup gave, `link` and `run` are the first statistic of those names, -1 where
    there is none; times are nanoseconds on the file's clock."""

    op: np.ndarray
    start: np.ndarray
    end: np.ndarray
    link: np.ndarray
    run: np.ndarray


@dataclass
class Line:
    """A line of a plane, before its events are read."""

    plane: Plane
    span: Span
    name: str
    at: int
    """When its clock starts, in nanoseconds."""


def read_line(plane: Plane, span: Span) -> Line:
    """A line's name and the start of its clock; they stand before its events, in every file that XLA writes."""
    name, shown, at = "", "", 0
    for number, _, value in fields(plane.data, *span):
        if number == 2 and isinstance(value, tuple):
            name = text(plane.data, value)
        elif number == 11 and isinstance(value, tuple):
            shown = text(plane.data, value)
        elif number == 3 and isinstance(value, int):
            at = signed(value)
        elif number == 4 and name:
            break
    if abs(at) > 1 << 62:
        raise Broken("a line whose clock starts at no time")
    return Line(plane, span, name or shown, at)


class Wanted:
    """Which statistics of events are read: those that tell ops apart, one that links an event to another, one that numbers a run."""

    def __init__(self, plane: Plane, apart: frozenset[str], link: tuple[str, ...], run: tuple[str, ...]) -> None:
        self.roles: dict[int, int] = {}
        for number, label in plane.labels.items():
            role = 1 if label in apart else 2 if label in link else 3 if label in run else 0
            if role:
                self.roles[number] = role


Lookup = Callable[[int, tuple[bytes, ...]], int]
"""The caller's number for an op: the entry of its table, and the statistics that tell it apart, as bytes."""


def events(line: Line, wanted: Wanted, lookup: Lookup) -> Iterator[Columns]:
    """The events of a line, some tens of thousands at a time. A lookup below zero drops the event."""
    reader = _Reader(line, wanted, lookup)
    data, (at, end) = line.plane.data, line.span
    while at < end:
        size = min(_WINDOW, end - at)
        used = 0
        while not used:
            used = reader.window(data[at : at + size], at + size >= end)
            if used:
                break
            if size >= min(end - at, _MOST_EVENT):
                raise Broken("a field that is longer than its message")
            size = min(size * 2, end - at)  # one event that is larger than the window
        at += used
        if at > end:
            raise Broken("a field that is longer than its message")
        if len(reader.ops) >= _CHUNK:
            yield reader.taken()
    if reader.ops:
        yield reader.taken()


class _Reader:
    """Columns in the making."""

    def __init__(self, line: Line, wanted: Wanted, lookup: Lookup) -> None:
        self.line, self.roles, self.lookup = line, wanted.roles, lookup
        self.known: dict[tuple[bytes, tuple[bytes, ...]], int] = {}
        self._empty()

    def _empty(self) -> None:
        self.ops: list[int] = []
        self.starts: list[bytes] = []
        self.lasts: list[bytes] = []
        self.links: list[bytes] = []
        self.runs: list[bytes] = []

    def window(self, data: bytes, is_last: bool) -> int:
        """Read the fields that lie wholly in a window; how many bytes they were."""
        at, stop, match, known = 0, len(data), _EVENT.match, self.known
        ops, starts, lasts, links, runs = self.ops, self.starts, self.lasts, self.links, self.runs
        while at < stop:
            head = match(data, at)
            size = data[at + 1] if at + 1 < stop else 0
            if head is None or size >= 0x80:
                span, at_next = _field(data, at)
                if span is None:
                    if at_next < 0:
                        break
                    at = at_next
                    continue
                begin, end = span
            else:
                begin = at + 2
                end = begin + size
            if end > stop:
                break
            place = end if head is None else head.end()
            if head is None or place > end:
                number, first, last, place = self._slowly(data, begin, end)
            else:
                number, first, last = head.groups(b"\0")
            apart, link, run = self._stats(data, place, end) if place < end else ((), _ABSENT, _ABSENT)
            op = known.get((number, apart))
            if op is None:
                op = self._new(number, apart)
            if op >= 0:
                ops.append(op)
                starts.append(first)
                lasts.append(last)
                links.append(link)
                runs.append(run)
            at = end
        if is_last and at < stop:
            raise Broken("a field that is longer than its message")
        return at

    def _new(self, number: bytes, apart: tuple[bytes, ...]) -> int:
        op = self.lookup(varint(number, 0, len(number))[0], apart)
        if len(self.known) > _MOST_KNOWN:
            self.known.clear()
        self.known[number, apart] = op
        return op

    def _slowly(self, data: bytes, begin: int, end: int) -> tuple[bytes, bytes, bytes, int]:
        """An event whose fields stand in an order, or with others between them, that the expression does not know."""
        found = {1: b"\0", 2: b"\0", 3: b"\0"}
        for number, kind, value in fields(data, begin, end):
            if kind == VARINT and isinstance(value, int) and number in found:
                found[number] = _written(value)
        return found[1], found[2], found[3], begin

    def _stats(self, data: bytes, at: int, end: int) -> tuple[tuple[bytes, ...], bytes, bytes]:
        """The statistics of an event from a position on, in their roles."""
        apart: tuple[bytes, ...] = ()
        link = run = _ABSENT
        roles = self.roles.get
        while at < end:
            if (
                data[at] != 0x22
                or at + 3 >= end
                or data[at + 1] >= 0x80
                or data[at + 2] != 0x08
                or data[at + 3] >= 0x80
            ):
                span, at = _field(data, at)
                if at < 0 or at > end:
                    raise Broken("a field that is longer than its message")
                if span is None:
                    continue
                begin, stop = span
                label, value = _labelled(data, begin, stop)
            else:
                begin = at + 2
                stop = at = begin + data[at + 1]
                label, value = data[begin + 1], begin + 2
            if stop > end:
                raise Broken("a field that is longer than its message")
            role = roles(label, 0)
            if role == 1:
                apart += (data[begin:stop],)
            elif role == 2:
                link = _number(data, value, stop, link)
            elif role == 3:
                run = _number(data, value, stop, run)
            at = stop
        return apart, link, run

    def taken(self) -> Columns:
        """The columns so far; the next begin empty."""
        offset, duration = varints(b"".join(self.starts)), varints(b"".join(self.lasts))
        link, run = varints(b"".join(self.links)), varints(b"".join(self.runs))
        if not len(self.ops) == len(offset) == len(duration) == len(link) == len(run):
            raise Broken("a number that is cut off")
        if len(offset) and (np.abs(offset).max() > 1 << 61 or duration.min() < 0 or duration.max() > 1 << 61):
            raise Broken("an event that lasts, or begins, longer than any recording")
        # Start and end are rounded alike, so that what touches or nests in the file still does.
        columns = Columns(
            np.array(self.ops), self.line.at + offset // 1000, self.line.at + (offset + duration) // 1000, link, run
        )
        self._empty()
        return columns


def _field(data: bytes, at: int) -> tuple[Span | None, int]:
    """The field at a position: where an event's or statistic's piece (number 4) lies, nothing for another field; and where the next begins,
    below zero where the window ends before that is known."""
    try:
        tag, place = varint(data, at, len(data))
        kind = tag & 7
        if kind == PIECE:
            size, place = varint(data, place, len(data))
            return ((place, place + size) if tag >> 3 == 4 else None), place + size
        if kind == VARINT:
            return None, varint(data, place, len(data))[1]
    except Broken as error:
        if "ten bytes" in str(error):
            raise
        return None, -1
    if kind in (EIGHT, 5):
        return None, place + (8 if kind == EIGHT else 4)
    raise Broken(f"a field of wire type {kind}")


def _labelled(data: bytes, begin: int, stop: int) -> tuple[int, int]:
    """The number of a statistic's name, and where its value begins, for names beyond the first 127."""
    if begin < stop and data[begin] == 0x08:
        return varint(data, begin + 1, stop)
    return 0, stop


def _number(data: bytes, at: int, stop: int, otherwise: bytes) -> bytes:
    """A statistic's value as a varint's bytes; `otherwise` where it is no number."""
    if at + 1 < stop and data[at] in (0x18, 0x20):
        _, end = varint(data, at + 1, stop)
        return data[at + 1 : end]
    return otherwise


def _written(value: int) -> bytes:
    """A number as a varint."""
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
