"""The file of XProf, piece by piece: planes with their tables, lines with their events as columns.

A file (`XSpace`) is a row of planes (a device, the host, tables of programs). A plane has lines (a core's ops, a
thread), and two tables: what its events are (name, statistics that are the same each time) and what its statistics are
called. An event is a number into the first table, an offset and a duration in picoseconds, and statistics of its own.
The tables stand behind the lines, so a plane is walked once for where its parts lie, and its lines are read after that.

Events themselves are read in `event_columns.py`.
"""

from dataclasses import dataclass, field
from functools import cached_property

from dragonscale.evidence.profiles.protobuf import (
    EIGHT,
    PIECE,
    VARINT,
    Broken,
    Buffer,
    Message,
    Span,
    double,
    fields,
    first_text,
    signed,
    text,
)

StatValue = int | float | str | bytes
MOST_PARTS = 1_000_000
"""Lines, or entries of a table, of one plane; real ones have fewer than a tenth of it."""
_MOST_READ = 100_000


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
            if len(self._read) > _MOST_READ:
                self._read.clear()
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
            found.append((first_text(data, value, 2), value))
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
            labels[key] = first_text(data, value, 2)
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
    name, shown = (first_text(plane.data, span, number) for number in (2, 4))
    return EntryText(name, shown, plane.stats(Message(plane.data, span).spans(5)))


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
