"""The events of a Chrome trace, one batch after the other, out of a file of any size.

A trace of a few steps is easily a gigabyte of JSON, so its text is never held whole: a window of some megabytes moves
over the unpacked bytes. Of what the window holds, everything up to a `}` that is followed by `,{` or `]` is handed to
the decoder as one list. If those bytes between `[` and `]` are valid JSON, then every bracket and string in them is
closed and the cut was between two events: the decoder itself proves the guess. Where it does not (an event with `NaN`,
a broken string, the end of the list), the window is cut event by event with a regular expression that steps from
bracket to bracket, and what cannot be read is counted and left out.

Both forms of the format are read: a list of events, and an object with `traceEvents` somewhere among its keys. A list
that never ends is legal in the first (a program that crashed wrote it); in the second it is a file that was cut off.
Both are said.
"""

import gzip
import itertools
import re
import zlib
from collections.abc import Iterator
from decimal import Decimal
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.listener import Listener

_CHUNK = 1 << 20
MOST_EVENT_BYTES = 16 << 20
"""The longest event that is read. Real ones have some hundred bytes, with a stack of calls some thousand."""
_MOST_VALUE_BYTES = 4 << 20
"""The longest value beside the events that is kept; longer ones (Chrome's stack frames) are skipped."""
_MOST_UNREADABLE = 100_000
_MOST_BLANKS = 16 << 20
"""Bytes between two values in which there is nothing."""
_MOST_UNPACKED, _MOST_RATIO = 1 << 30, 100
"""Bytes that a small packed file may become, and how many times its own size any may. Traces become 10 to 30 times as
large; what becomes 1,000 times as large is made to fill a machine."""
_MOST_BRACKETS = 5_000_000
"""Brackets of a value that is skipped; each takes a microsecond."""
_DEEPEST = 10_000
_BOUNDARY = re.compile(rb"\}\s*+(?:,\s*+\{|\])")
_SPACE = re.compile(rb"[\s,]*+")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKET = re.compile(rb'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+([{}\[\]])', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]++(?=[\s,\]}])")
_NOT_JSON = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")|-?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE | re.DOTALL)
_REPAIRABLE = re.compile(
    rb"[\x80-\xff]|\b(?:nan|inf(?:inity)?)\b|[\x00-\x08\x0b\x0c\x0e-\x1f]|[\t\r\n][^\t\r\n\"{}\[\]]*+\"\s*[,:}]",
    re.IGNORECASE,
)


class TraceEvent(msgspec.Struct, gc=False):
    """An event as the format has it. Its `args` stay undecoded: only some kinds of events have any that matter."""

    ph: str = ""
    name: str | int | float | None = None
    cat: str | None = None
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: float | None = None
    """Microseconds."""
    dur: float | None = None
    args: msgspec.Raw = msgspec.Raw()

    def decoded(self, decoder: msgspec.json.Decoder[Any]) -> Any:
        """Its arguments; a record without any where there are none, or none that can be read."""
        try:
            return decoder.decode(self.args)
        except _FAILED:
            return decoder.type()


class ExactEvent(TraceEvent, gc=False):
    """An event whose moment is kept as it is written: microseconds since 1970 have 16 digits before the point, more
    than a float keeps nanoseconds of."""

    ts: Decimal | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    dur: Decimal | None = None  # pyright: ignore[reportIncompatibleVariableOverride]


_LIST = msgspec.json.Decoder(list[TraceEvent], strict=False)
_EXACT = cast(msgspec.json.Decoder[list[TraceEvent]], msgspec.json.Decoder(list[ExactEvent], strict=False))
_LONG_MOMENT = re.compile(rb'"ts"\s*:\s*"?\d{14,}\.\d')
_FAILED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError)


def whole(value: object, otherwise: int = -1) -> int:
    """A count, however it was written; `otherwise` where it is none or does not fit into 63 bits.

    >>> whole("0x10"), whole(7.0), whole(None), whole(1 << 90), whole("many")
    (16, 7, -1, -1, -1)
    """
    if type(value) is int and -(2**63) < value < 2**63:  # nearly always
        return value
    if isinstance(value, str):
        try:
            value = int(value[:32], 0)
        except ValueError:
            return otherwise
    if not isinstance(value, int | float) or not -(2**63) < value < 2**63:
        return otherwise
    return int(value)


class EventStream:
    """The batches of events of one file; afterwards, what stood beside them (`beside`), and what was not as it should
    be."""

    def __init__(self, path: Path, listener: Listener) -> None:
        self.path, self.listener = path, listener
        self.beside: dict[str, Any] = {}
        self.cut = ""
        """How the file breaks off, where it does."""
        self.unreadable = 0
        """Events left out."""
        self.events = 0
        self._size = max(path.stat().st_size, 1)
        self._read = 0
        self._buffer = b""
        self._at = 0
        self._ended = False
        self._decoder: msgspec.json.Decoder[list[TraceEvent]] | None = None

    def __iter__(self) -> Iterator[list[TraceEvent]]:
        with self.path.open("rb") as self._raw:
            packed = self._raw.read(2) == b"\x1f\x8b"
            self._raw.seek(0)
            self._most = max(_MOST_UNPACKED, _MOST_RATIO * self._size) if packed else None
            self._file = cast(BufferedReader, gzip.GzipFile(fileobj=self._raw)) if packed else self._raw
            for batch in self._batches():
                self.events += len(batch)
                self.listener.step(min(self._raw.tell(), self._size), self._size)
                yield batch

    # --- the window

    def _more(self) -> bool:
        """Read on, and forget what lies behind; whether there was more."""
        if self._ended:
            return False
        pieces: list[bytes] = []
        length = 0
        try:
            # one reading after the other: a single long one would lose what lies before the place where packed data
            # breaks
            while length < _CHUNK and (piece := self._file.read1(_CHUNK)):
                pieces.append(piece)
                length += len(piece)
        except (OSError, EOFError, zlib.error) as error:
            self.cut = f"its packed data ends or breaks ({str(error)[:80].rstrip('.')})"
        self._ended = length < _CHUNK
        chunk = b"".join(pieces)
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        self._read += length
        if self._most is not None and self._read > self._most:
            raise InputError(
                f"{shorten(str(self.path))} has {self._size:,} bytes and unpacks to more than {self._most:,}; "
                "that is no profile."
            )
        return bool(chunk)

    def _peek(self) -> bytes:
        """The next byte that is neither space nor comma; empty at the end."""
        blanks = 0
        while True:
            found = _SPACE.match(self._buffer, self._at)
            end = found.end() if found else self._at
            blanks += end - self._at
            self._at = end
            if blanks > _MOST_BLANKS:
                said = f"{shorten(str(self.path))} has more than {_MOST_BLANKS >> 20} MiB of blanks"
                raise InputError(f"{said}; that is no profile.")
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if not self._more():
                return b""

    # --- outside of the events

    def _batches(self) -> Iterator[list[TraceEvent]]:
        first = self._peek()
        if first == b"[":
            self._at += 1
            yield from self._listed()
            return
        if first != b"{":
            raise InputError(
                f"{shorten(str(self.path))} is not a Chrome trace: it begins with {shorten(first.decode('latin1'))}."
            )
        self._at += 1
        while self._peek() == b'"':
            key = self._key()
            if key is None or self._colon() == b"":
                break
            if key == "traceEvents" and self._peek() == b"[":
                self._at += 1
                yield from self._listed()
            elif not self._value(key):
                break
        if self._peek() != b"}" and not self.cut:
            self.cut = "its text ends or breaks before the last bracket"

    def _key(self) -> str | None:
        while not (found := _STRING.match(self._buffer, self._at)):
            if len(self._buffer) - self._at > _CHUNK or not self._more():
                return None
        self._at = found.end()
        return found.group()[1:-1].decode("utf-8", "replace")

    def _colon(self) -> bytes:
        if self._peek() != b":":
            return b""
        self._at += 1
        return self._peek()

    def _value(self, key: str) -> bool:
        """Keep a value, or skip it where it is long; whether it had an end."""
        kept: list[bytes] | None = []
        length, depth, begun = 0, 0, self._peek()
        for step in itertools.count():
            if step > _MOST_BRACKETS:
                self.cut = f"its value of {shorten(key)} has more than {_MOST_BRACKETS:,} parts"
                return False
            pattern = _BRACKET if begun in (b"{", b"[") else _STRING if begun == b'"' else _SCALAR
            found = pattern.match(self._buffer, self._at)
            if not found:
                if len(self._buffer) - self._at > MOST_EVENT_BYTES or not self._more():
                    return False
                continue
            length += len(found.group())
            if kept is not None:
                kept.append(found.group())
                kept = kept if length <= _MOST_VALUE_BYTES else None
            self._at = found.end()
            if pattern is _BRACKET:
                depth += 1 if found.group(1) in b"{[" else -1
            if depth > _DEEPEST:
                return False
            if depth <= 0:
                break
        if kept is not None:
            try:
                self.beside[key] = msgspec.json.decode(b"".join(kept))
            except _FAILED:
                self.unreadable += 1
        return True

    # --- inside of the events

    def _listed(self) -> Iterator[list[TraceEvent]]:
        while True:
            if len(self._buffer) - self._at < _CHUNK:
                self._more()
            if (first := self._peek()) == b"]":
                self._at += 1
                return
            if not first:
                self.cut = self.cut or "its list of events has no end"
                return
            yield self._many() or self._single()

    def _many(self) -> list[TraceEvent]:
        """All events of the window at once, where one of its last boundaries proves to be one."""
        end = len(self._buffer)
        for attempt in range(2):
            end = self._buffer.rfind(b"}", self._at, end)
            while end > self._at and not _BOUNDARY.match(self._buffer, end):
                end = self._buffer.rfind(b"}", self._at, end)
            if end <= self._at:
                return []
            text = b"[%b]" % self._buffer[self._at : end + 1]
            batch = self._decoded(text, repair=attempt == 0)
            if batch is not None:
                self._at = end + 1
                return batch
        return []

    def _single(self) -> list[TraceEvent]:
        """The events of the window one by one, up to the end of the list or to the last whole event."""
        batch: list[TraceEvent] = []
        while (first := self._buffer[self._at : self._at + 1]) and first != b"]":
            end = self._object_end()
            if end < 0:
                if batch or self._more():
                    break
                self._at, self.cut = len(self._buffer), self.cut or "its last event is not whole"
                break
            text = self._buffer[self._at : end]
            self._at = end
            one = self._decoded(b"[%b]" % text, repair=True) if first == b"{" else None
            batch.extend(one or ())
            if one is None:
                self._count_unreadable()
            found = _SPACE.match(self._buffer, self._at)
            self._at = found.end() if found else self._at
        if len(self._buffer) - self._at > MOST_EVENT_BYTES and not batch:
            raise InputError(
                f"{shorten(str(self.path))} has an event of more than {MOST_EVENT_BYTES >> 20} MiB; that is no profile."
            )
        return batch

    def _decoded(self, text: bytes, repair: bool) -> list[TraceEvent] | None:
        """A list of events, as it stands or repaired; none where it is no list of events."""
        if self._decoder is None:
            self._decoder = _EXACT if _LONG_MOMENT.search(text) else _LIST
        try:
            return self._decoder.decode(text)
        except _FAILED:
            if not repair or not _REPAIRABLE.search(text):
                return None
        try:
            return self._decoder.decode(_repaired(text))
        except _FAILED:
            return None

    def _count_unreadable(self) -> None:
        self.unreadable += 1
        if self.unreadable > max(_MOST_UNREADABLE, self.events):
            raise InputError(f"{shorten(str(self.path))} is no Chrome trace: most of its list are no events.")

    def _object_end(self) -> int:
        """Where the value that begins here ends; -1 where the window does not hold its end."""
        depth, at = 0, self._at
        if self._buffer[at : at + 1] not in (b"{", b"["):
            found = (_STRING if self._buffer[at : at + 1] == b'"' else _SCALAR).match(self._buffer, at)
            # a byte that begins nothing (a stray bracket) is stepped over, so that the scan always moves
            return found.end() if found else (at + 1 if self._buffer[at : at + 1] in b"}:" else -1)
        while found := _BRACKET.match(self._buffer, at):
            at = found.end()
            depth += 1 if found.group(1) in b"{[" else -1
            if not depth:
                return at
            if depth > _DEEPEST:
                raise InputError(
                    f"{shorten(str(self.path))} is no Chrome trace: it nests deeper than {_DEEPEST} brackets."
                )
        return -1


def _repaired(text: bytes) -> bytes:
    """The text with what some writers put that JSON does not know: `nan` and `inf` as numbers, bytes that are no UTF-8,
    tabs and line ends inside of strings."""
    text = _NOT_JSON.sub(lambda found: found.group(1) or b"null", text)
    text = text.decode("utf-8", "replace").encode()
    return _STRING.sub(lambda found: re.sub(rb"[\x00-\x1f]", b" ", found.group()), text)
