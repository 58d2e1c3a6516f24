"""The file of XProf, piece by piece: planes with their tables, lines with their events as columns.

A file (`XSpace`) is a row of planes (a device, the host, tables of programs). A plane has lines (a core's ops, a
thread), and two tables: what its events are (name, statistics that are the same each time) and what its statistics are
called. An event is a number into the first table, an offset and a duration in picoseconds, and statistics of its own.
The tables stand behind the lines, so a plane is walked once for where its parts lie, and its lines are read after that.

Events themselves are read in `event_columns.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from dragonscale.evidence.profiles.protobuf import Broken, Buffer, Message, Span, fields, first_text, signed, text

StatValue = int | float | str | bytes
MOST_PARTS = 1_000_000
"""Lines, or entries of a table, of one plane; real ones have fewer than a tenth of it."""
_MOST_READ = 100_000
_REFERENCE = 7
_FORMS: dict[int, Callable[[Message, int], StatValue]] = {
    2: Message.real,
    3: Message.bits,
    4: Message.whole,
    5: Message.word,
    6: Message.raw,
    _REFERENCE: Message.whole,
}
"""How a statistic's value is read, by the number of its field."""


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
        return _values(self.data, self.entries)

    def entry(self, number: int) -> EntryText:
        """An entry of the table of events; an empty one where the table has none."""
        known = self._read.get(number)
        if known is None:
            span = self.table.get(number)
            if len(self._read) > _MOST_READ:
                self._read.clear()
            known = self._read[number] = self._entry(Message(self.data, span)) if span else EntryText()
        return known

    def _entry(self, entry: Message) -> EntryText:
        return EntryText(entry.word(2), entry.word(4), self.stats(entry.all(5)))

    def stats(self, stats: Iterable[Message]) -> dict[str, StatValue]:
        """Statistics by name, of which the first counts; a reference is looked up."""
        found: dict[str, StatValue] = {}
        for stat in stats:
            name, form = self.labels.get(stat.whole(1), ""), next((each for each in stat.parts if each in _FORMS), 0)
            if name and form:
                value = _FORMS[form](stat, form)
                found.setdefault(name, self.labels.get(stat.whole(7), "") if form == _REFERENCE else value)
        return found

    def apart(self, pieces: tuple[bytes, ...]) -> dict[str, StatValue]:
        """Statistics of one event, taken out of the file; here the last of a name counts."""
        return self.stats(Message(each, (0, len(each))) for each in reversed(pieces))


def planes(data: Buffer) -> list[tuple[str, Span]]:
    """Names of the planes and where they lie."""
    found: list[tuple[str, Span]] = []
    for number, _, value in fields(data, 0, len(data)):
        if number == 1 and isinstance(value, tuple):
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
    labels = {number: first_text(data, value, 2) for number, value in _values(data, parts[5]).items()}
    return Plane(data, name, parts[3], parts[4], labels, parts[6])


def _values(data: Buffer, entries: list[Span]) -> dict[int, Span]:
    """Where the values of a map lie, by their keys."""
    pairs = (Message(data, span) for span in entries)
    return {pair.whole(1): pair.spans(2)[-1] for pair in pairs if pair.spans(2)}


@dataclass
class PlaneLine:
    """A line of a plane, before its events are read."""

    plane: Plane
    span: Span
    name: str
    at: int
    """When its clock starts, in nanoseconds."""


def read_line(plane: Plane, span: Span) -> PlaneLine:
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
    return PlaneLine(plane, span, name or shown, at)
