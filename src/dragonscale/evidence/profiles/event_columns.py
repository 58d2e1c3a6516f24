"""The events of a line as columns of numbers.

Most of a profile is events, some tens of bytes each, so this is the one reader that is written for speed: it finds
where each event begins, and then takes the same field of all events at once, with NumPy. Which op an event belongs to
is told by its entry in the plane's table and by those of its statistics that tell ops apart; both together make a key,
and only the first event of each key is looked at closely. An event that is written in another order than XLA's is read
by itself.

Varints at many places are decoded at once: eight bytes from each place are taken as one word; its lowest byte without
the high bit ends the varint, and the seven bits of each byte are pushed together in three steps. The few that are
longer than eight bytes (negative numbers have ten) get their last bytes one by one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dragonscale.evidence.profiles.intervals import looked_up
from dragonscale.evidence.profiles.protobuf import EIGHT, FOUR, PIECE, VARINT, Broken, CutOff, Message, varint
from dragonscale.evidence.profiles.xspace import Plane, PlaneLine

_WINDOW = 1 << 20
_MOST_EVENT = 1 << 26
_MOST_KNOWN = 300_000
_FEW = 24
"""Fewer events than this are read one by one."""
_DOUBLE_TAG = 0x11
_TAGS = np.zeros(256, np.int8)
_TAGS[[0x18, 0x20, 0x38]], _TAGS[_DOUBLE_TAG], _TAGS[[0x2A, 0x32]] = 1, 2, 3
"""How a statistic's value is written, by the byte before it: a number or reference, a float, a text; 0 for what nobody
writes."""
_LONG_TEXT = 4096
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_LABEL = np.uint64(0xC2B2AE3D27D4EB4F)

Lookup = Callable[[int, tuple[bytes, ...]], int]
"""The caller's number for an op: the entry of its table, and the statistics that tell it apart, as bytes."""


@dataclass
class Columns:
    """Some events of a line. `op` is what the caller's lookup gave, `link` and `run` are the statistics of those roles,
    -1 where there is none; times are nanoseconds on the file's clock."""

    op: np.ndarray
    start: np.ndarray
    end: np.ndarray
    link: np.ndarray
    run: np.ndarray


class Wanted:
    """Which statistics of events are read: those that tell ops apart, one that links an event to another, one that
    numbers a run."""

    def __init__(self, plane: Plane, apart: frozenset[str], link: tuple[str, ...], run: tuple[str, ...]) -> None:
        self.roles: dict[int, int] = {}
        for number, label in plane.labels.items():
            role = 1 if label in apart else 2 if label in link else 3 if label in run else 0
            if role and 0 < number < 1 << 62:
                self.roles[number] = role
        self._numbers = np.array(sorted(self.roles), np.int64)
        self._of = np.array([self.roles[each] for each in sorted(self.roles)], np.int64)

    def role(self, labels: np.ndarray) -> np.ndarray:
        """The roles of statistics by the numbers of their names; 0 for those that are not read."""
        return looked_up(self._numbers, self._of, labels, 0)


def events(line: PlaneLine, wanted: Wanted, lookup: Lookup) -> Iterator[Columns]:
    """The events of a line, some tens of thousands at a time. A lookup below zero drops the event."""
    reader = _Reader(line, wanted, lookup)
    data, (at, end) = line.plane.data, line.span
    size = _WINDOW
    while at < end:
        window = data[at : min(at + size, end)]
        heads, used = _heads(window)
        if not used:
            if size >= min(end - at, _MOST_EVENT):
                raise Broken("a field that is longer than its message")
            size *= 2  # one event that is larger than the window
            continue
        at += used
        size = _WINDOW
        if at > end:
            raise Broken("a field that is longer than its message")
        if heads:
            columns = reader.read(window, heads)
            if len(columns.op):
                yield columns


def _heads(data: bytes) -> tuple[list[int], int]:
    """Where the events begin that lie wholly in a window, and how many bytes were used."""
    found: list[int] = []
    at, stop = 0, len(data)
    add = found.append
    last = stop - 1
    while at < last:
        is_event, size = data[at] == 0x22, data[at + 1]
        after = at + 2 + size if is_event and size < 0x80 else _field_end(data, at)
        if is_event and 0 < after <= stop:  # nearly always
            add(at)
        elif is_event or after < 0:
            break
        at = after
    return found, at


PADDING = 24
"""Bytes to have behind a buffer, so that a word can be taken anywhere in it."""
_HIGH = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
_STEPS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
_ONE, _LAST, _SEVEN = np.uint64(1), np.uint64(56), np.uint64(0x7F7F7F7F7F7F7F7F)


class Words:
    """A buffer as bytes, and as the word that begins at each byte.

    >>> words = Words(bytes([0x96, 0x01, 0x07]) + b"\\xff" * 9 + b"\\x01")
    >>> values, ends = words.varints(np.array([0, 2, 3]))
    >>> values.tolist(), ends.tolist()
    ([150, 7, -1], [2, 3, 13])
    """

    def __init__(self, data: bytes) -> None:
        padded = data + bytes(PADDING)
        self.raw = np.frombuffer(padded, np.uint8)
        # Copied once: a word at every byte overlaps its neighbours, and gathering from such a view would copy all of it
        # each time.
        self.words = np.ndarray((len(padded) - 8,), "<u8", padded, strides=(1,)).copy()

    def varints(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The varints that begin at places, as int64, and where they end."""
        word = self.words[at]
        ending = ~word & _HIGH
        lowest = ending & (~ending + _ONE)
        within = (lowest << _ONE) - _ONE
        size = ((within & _ONES) * _ONES) >> _LAST
        value = word & within & _SEVEN
        for low, high, shift in _STEPS:
            value = (value & low) | ((value & high) >> shift)
        ends = at + size.astype(np.int64)
        long = np.flatnonzero(lowest == 0)
        if len(long):
            self._finish(at, long, value, ends)
        return value.view(np.int64), ends

    def _finish(self, at: np.ndarray, long: np.ndarray, value: np.ndarray, ends: np.ndarray) -> None:
        ninth, tenth = self.raw[at[long] + 8].astype(np.uint64), self.raw[at[long] + 9].astype(np.uint64)
        is_longest = ninth >= 0x80
        sign = np.where(is_longest, tenth & _ONE, 0).astype(np.uint64) << np.uint64(63)
        value[long] |= ((ninth & np.uint64(0x7F)) << _LAST) | sign
        ends[long] += np.where(is_longest, 2, 1)
        # What is taken for a varint here may be something else, so one that is too long is no error yet; as a length or
        # a name it fits nothing.
        value[long[is_longest & (tenth >= 0x80)]] = ~np.uint64(0)

    def hashes(self, at: np.ndarray, size: np.ndarray) -> np.ndarray:
        """A number for the bytes at each place, equal where the bytes are."""
        found = size.astype(np.uint64) * _MIX
        going = np.flatnonzero(size > 0)
        done = 0
        while len(going):
            left = np.minimum(size[going] - done, 8).astype(np.uint64)
            word = self.words[at[going] + done]
            word &= np.where(left == 8, ~np.uint64(0), (_ONE << (left << np.uint64(3))) - _ONE)
            mixed = (found[going] ^ word) * _MIX
            found[going] = mixed ^ (mixed >> np.uint64(31))
            done += 8
            going = going[size[going] > done]
        return found


class _Reader:
    """Reads windows of one line."""

    def __init__(self, line: PlaneLine, wanted: Wanted, lookup: Lookup) -> None:
        self.line, self.wanted, self.lookup = line, wanted, lookup
        self.slow: dict[tuple[int, tuple[bytes, ...]], int] = {}
        self.fast: dict[int, int] = {}

    def read(self, data: bytes, heads: list[int]) -> Columns:
        """The events that begin at places of a window."""
        words = Words(data)
        at = np.array(heads, np.int64)
        size, begin = words.varints(at + 1)
        end = begin + size
        count = len(heads)
        number, offset, duration = (np.zeros(count, np.int64) for _ in range(3))
        link, run = np.full(count, -1), np.full(count, -1)
        odd = np.ones(count, bool)
        key = np.zeros(count, np.uint64)
        if count >= _FEW:
            cursor = begin.copy()
            for tag, column in ((0x08, number), (0x10, offset), (0x18, duration)):
                there = np.flatnonzero(cursor < end)
                there = there[words.raw[cursor[there]] == tag]
                column[there], cursor[there] = words.varints(cursor[there] + 1)
            odd = cursor > end
            key = self._stats(words, cursor, end, odd, link, run) ^ (number.view(np.uint64) * _MIX_LABEL)
        op = np.full(count, -1)
        for place in np.flatnonzero(odd):
            number[place], offset[place], duration[place], apart, link[place], run[place] = self._slowly(
                data, int(begin[place]), int(end[place])
            )
            op[place] = self._number(int(number[place]), apart)
        plain = np.flatnonzero(~odd)
        if len(plain):
            op[plain] = self._plainly(data, key[plain], begin[plain], end[plain])
        return self._columns(op, offset, duration, link, run)

    def _plainly(self, data: bytes, key: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The ops of events by their keys; the first event of a new key is read by itself."""
        keys, first, place = np.unique(key, return_index=True, return_inverse=True)
        ops = np.zeros(len(keys), np.int64)
        for each in np.argsort(first).tolist():  # in the order of the file, so that ops are numbered as they appear
            word, at = int(keys[each]), int(first[each])
            op = self.fast.get(word)
            if op is None:
                number, _, _, apart, _, _ = self._slowly(data, int(begin[at]), int(end[at]))
                op = self._number(number, apart)
                if len(self.fast) > _MOST_KNOWN:
                    self.fast.clear()
                self.fast[word] = op
            ops[each] = op
        return ops[place]

    def _number(self, number: int, apart: tuple[bytes, ...]) -> int:
        op = self.slow.get((number, apart))
        if op is None:
            op = self.lookup(number, apart)
            if len(self.slow) > _MOST_KNOWN:
                self.slow.clear()
            self.slow[number, apart] = op
        return op

    def _stats(
        self, words: Words, cursor: np.ndarray, end: np.ndarray, odd: np.ndarray, link: np.ndarray, run: np.ndarray
    ) -> np.ndarray:
        """Read the statistics behind a place of each event, one of each event at a time; the keys that tell their ops
        apart."""
        key = np.zeros(len(cursor), np.uint64)
        active = np.flatnonzero((cursor < end) & ~odd)
        at = cursor[active]
        while len(active):
            raw = words.raw
            size, begin = words.varints(at + 1)
            stop = begin + size
            label, value_at = words.varints(begin + 1)
            fits = (raw[at] == 0x22) & (size >= 2) & (stop <= end[active])
            fits &= (raw[begin] == 0x08) & (label >= 0) & (value_at <= stop)
            role = np.where(fits, self.wanted.role(label), 0)
            read = np.flatnonzero(role)
            tag = _TAGS[raw[value_at[read]]]
            value, after = self._values(words, tag, value_at[read], stop[read])
            fits[read] &= after <= stop[read]
            which, roles = active[read], role[read]
            for column, each in ((link, 2), (run, 3)):
                told = (roles == each) & (tag == 1)
                column[which[told]] = value[told]
            apart = roles == 1
            mixed = (label[read][apart].view(np.uint64) * _MIX_LABEL) ^ value[apart].view(np.uint64)
            key[which[apart]] = (key[which[apart]] ^ mixed ^ (mixed >> np.uint64(29))) * _MIX
            odd[active[~fits]] = True
            going = fits & (stop < end[active])
            active, at = active[going], stop[going]
        return key

    def _values(self, words: Words, tag: np.ndarray, at: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values of statistics and where they end, beyond their end where they cannot be read here; of texts a number
        that stands for them."""
        value, after = words.varints(at + 1)
        double = np.flatnonzero(tag == 2)
        value[double], after[double] = words.words[at[double] + 1].view(np.int64), at[double] + 9
        texts = np.flatnonzero(tag == 3)
        size = np.where((value[texts] < 0) | (value[texts] > _LONG_TEXT), stop[texts] + 1, value[texts])
        begin, after[texts] = after[texts], after[texts] + size
        read = after[texts] <= stop[texts]
        value[texts[read]] = words.hashes(begin[read], size[read]).view(np.int64)
        after[tag == 0] = np.iinfo(np.int64).max
        return value, after

    def _slowly(self, data: bytes, begin: int, end: int) -> tuple[int, int, int, tuple[bytes, ...], int, int]:
        """One event by itself: entry, offset, duration, what tells its op apart, link and run."""
        event, apart, numbers = Message(data, (begin, end)), list[bytes](), {2: -1, 3: -1}
        for first, last in event.spans(4):
            stat = Message(data, (first, last))
            role = self.wanted.roles.get(stat.whole(1), 0)
            if role == 1:
                apart.append(data[first:last])
            elif role:
                numbers[role] = next((stat.whole(form) for form in (3, 4, 7) if stat.has(form)), numbers[role])
        return event.whole(1), event.whole(2), event.whole(3), tuple(apart), numbers[2], numbers[3]

    def _columns(
        self, op: np.ndarray, offset: np.ndarray, duration: np.ndarray, link: np.ndarray, run: np.ndarray
    ) -> Columns:
        if any((each < low).any() or (each > 1 << 61).any() for each, low in ((offset, -1 << 61), (duration, 0))):
            raise Broken("an event that begins or lasts longer than any recording")
        kept = op >= 0
        at, offset, duration = self.line.at, offset[kept], duration[kept]
        # Start and end are rounded alike, so that what touches or nests in the file still does.
        return Columns(op[kept], at + offset // 1000, at + (offset + duration) // 1000, link[kept], run[kept])


def _field_end(data: bytes, at: int) -> int:
    """Where the field at a place is over; below zero where the window ends before that can be told."""
    try:
        tag, place = varint(data, at, len(data))
        kind = tag & 7
        if kind in (EIGHT, FOUR):
            return place + (8 if kind == EIGHT else 4)
        size, place = varint(data, place, len(data)) if kind in (PIECE, VARINT) else (0, 0)
    except CutOff:
        return -1
    if not place:
        raise Broken(f"a field of wire type {kind}")
    return place + size if kind == PIECE else place
